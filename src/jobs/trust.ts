/**
 * Scores of trust are computed as their grounds change. The pass over all of them is the check: it computes everybody's from the grounds
 * and expects what is there (I9). What differs is counted, told, and computed again. And what no window reaches any more is forgotten.
 */
import type { Client } from 'pg';
import type { Community } from '../communities.js';
import { DAY_MS } from '../core/retention.js';
import { CLAIMS, scoringRules } from '../core/trust.js';
import { inSnapshot } from '../store/personal-data.js';
import { countOldGrounds, forgetGrounds } from '../store/trust.js';
import {
  type ComputedScore,
  computeScores,
  forgetScores,
  type KeptScore,
  markDue,
  nextSubjects,
  readClaimKeys,
  readSweeps,
  settledScores,
} from '../store/trust-scores.js';
import { inEachCommunity, type Job, type JobContext, type JobResult } from './job.js';

/** Grounds are kept for longer than they count, so that a wider window finds some. */
const MARGIN_DAYS = 30;

export const trustPass: Job = {
  name: 'trust-pass',
  cron: '17 3 * * *',
  fill: '1d',
  about: 'computes every score of trust anew and compares: what differs is counted and mended',
  purges: false,
  run: async (context, client) => {
    const sweeps = await readSweeps(client);
    const keys = await readClaimKeys(client);
    let changed = 0;
    for (const community of context.communities.all()) {
      const { id, settings } = community;
      const rules = scoringRules(
        settings,
        CLAIMS.map((claim) => keys.get(`${id}/${claim}`)),
      );
      const sweep = sweeps.get(id);
      // While its rules change everything is computed anyway.
      if (sweep?.rules !== rules || !sweep.isDone) continue;
      const passed = await passOver(context, client, community);
      changed += passed.changed;
      if (passed.more) return { changed, more: true };
    }
    return { changed, more: false };
  },
  dryRun: async () => [],
};

/** Everybody, however many they are; each page is of one moment, and nothing waits for it. */
async function passOver(context: JobContext, client: Client, community: Community): Promise<JobResult> {
  const { bounds, signal, now } = context;
  let changed = 0;
  for (let after = ''; ; ) {
    if (signal.aborted) return { changed, more: false };
    const page = await inSnapshot(client, async () => {
      const subjects = await nextSubjects(client, community.id, after, bounds.rows);
      return { subjects, wrong: await wrongAmong(client, community, subjects, now()) };
    });
    if (page.wrong.length > 0) {
      await markDue(client, community.id, page.wrong, now());
      tell(context, community, page.wrong);
      changed += page.wrong.length;
    }
    if (page.subjects.length < bounds.rows) return { changed, more: false };
    after = page.subjects.at(-1)!;
  }
}

async function wrongAmong(
  client: Client,
  { id: community, settings }: Community,
  subjects: readonly string[],
  now: number,
): Promise<string[]> {
  const wrong = new Set<string>();
  for (const claim of CLAIMS) {
    const asked = { community, claim, subjects };
    const { kept, due } = await settledScores(client, asked, now);
    for (const score of await computeScores(client, asked, settings, now)) {
      const { subject } = score;
      if (!due.has(subject) && !isSame(score, kept.get(subject)!)) wrong.add(subject);
    }
  }
  return [...wrong];
}

function isSame(computed: ComputedScore, { score, grounded, changesAt }: KeptScore): boolean {
  return computed.score === score && computed.grounded === grounded && computed.changesAt === changesAt;
}

function tell({ metrics, log }: JobContext, { slug }: Community, wrong: readonly string[]): void {
  metrics?.trustCorrections.inc(wrong.length);
  log?.warn({ community: slug, people: wrong.length }, 'scores of trust were wrong and are computed again');
}

const keptSince = ({ now }: Pick<JobContext, 'now'>, { settings }: Community): number =>
  now() - (settings['trust.windowDays'] + MARGIN_DAYS) * DAY_MS;

export const forgetTrust: Job = {
  name: 'forget-trust',
  cron: '53 4 * * *',
  fill: '1d',
  about: 'forgets reports and contacts that no longer count, and scores that stand on nothing',
  purges: false,
  run: (context, client) =>
    inEachCommunity(context, async (community) => {
      const before = keptSince(context, community);
      const { rows } = context.bounds;
      const grounds = await forgetGrounds(client, community.id, before, rows);
      return grounds + (await forgetScores(client, community.id, before, rows));
    }),
  dryRun: async (context, client) => {
    let rows = 0;
    for (const community of context.communities.all())
      rows += await countOldGrounds(client, community.id, keptSince(context, community));
    return rows === 0 ? [] : [{ reason: 'old', class: 'ground', rows }];
  },
};
