/**
 * Scores of trust are computed as their grounds change. The pass over all of them is the check: it computes everybody's from the grounds
 * and expects what is there (I9). What differs is counted, logged and computed again. The pass also grants standing, which takes weeks to
 * earn, so once a day is enough. And what no window reaches any more is forgotten.
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
  endPass,
  forgetScores,
  type KeptScore,
  markDue,
  nextSubjects,
  readClaimKeys,
  readPassed,
  readSweeps,
  savePassed,
  settledScores,
} from '../store/trust-scores.js';
import { reviewStanding } from '../store/trust-standing.js';
import { inEachCommunity, type Job, type JobContext, type JobResult } from './job.js';

/** Grounds are kept for longer than they count, so that a wider window finds some. */
const MARGIN_DAYS = 30;
/** Behind every key. */
const PASSED = 'ff'.repeat(33);

export const trustPass: Job = {
  name: 'trust-pass',
  cron: '17 3 * * *',
  fill: '1d',
  about:
    'computes every score of trust again and compares: what differs is counted and corrected; grants standing',
  purges: false,
  run: async (context, client) => {
    const communities = await settledCommunities(context, client);
    const passed = await readPassed(client);
    let changed = 0;
    let left = context.bounds.batches;
    for (const community of communities) {
      const done = await passOver(context, client, community, { from: passed.get(community.id) ?? '', left });
      changed += done.changed;
      left -= done.pages;
      if (done.more) return { changed, more: !context.signal.aborted };
    }
    await endPass(client);
    return { changed, more: false };
  },
  dryRun: async () => [],
};

/** Where rules change everything is computed anyway. */
async function settledCommunities(
  { communities }: JobContext,
  client: Client,
): Promise<readonly Community[]> {
  const sweeps = await readSweeps(client);
  const keys = await readClaimKeys(client);
  return communities.all().filter((community) => {
    const { id } = community;
    const own = CLAIMS.map((claim) => keys.get(`${id}/${claim}`));
    return sweeps.get(id)?.isDone === true && sweeps.get(id)?.rules === scoringRules(community, own);
  });
}

/** Each page is of one moment, and nobody waits for it. */
async function passOver(
  context: JobContext,
  client: Client,
  community: Community,
  { from, left }: { readonly from: string; readonly left: number },
): Promise<JobResult & { readonly pages: number }> {
  const { bounds, signal, now } = context;
  let changed = 0;
  let pages = 0;
  for (let after = from; after !== PASSED; pages += 1) {
    if (pages >= left || signal.aborted) return { changed, pages, more: true };
    const page = await inSnapshot(client, async () => {
      const subjects = await nextSubjects(client, community.id, after, bounds.rows);
      return { subjects, wrong: await wrongAmong(client, community, subjects, now()) };
    });
    if (page.wrong.length > 0) {
      await markDue(client, community.id, page.wrong, now());
      tell(context, community, page.wrong);
      changed += page.wrong.length;
    }
    await reviewStanding(client, community, page.subjects, now());
    after = page.subjects.length < bounds.rows ? PASSED : page.subjects.at(-1)!;
    await savePassed(client, community.id, after);
  }
  return { changed, pages, more: false };
}

async function wrongAmong(
  client: Client,
  rules: Community,
  subjects: readonly string[],
  now: number,
): Promise<string[]> {
  const { id: community } = rules;
  const wrong = new Set<string>();
  for (const claim of CLAIMS) {
    const asked = { community, claim, subjects };
    const { kept, due } = await settledScores(client, asked, now);
    for (const score of await computeScores(client, asked, rules, now)) {
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
