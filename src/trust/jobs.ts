/**
 * The daily jobs of trust. Scores are computed as their grounds change; `trust-pass` checks this: it computes
 * every score from its grounds and compares it with the stored one (I9). Scores that differ are counted,
 * logged and computed again. The pass also grants standing; that takes weeks to earn, so once a day is
 * enough. `forget-trust` deletes grounds that are older than the window.
 */
import type { Client } from 'pg';
import type { Community } from '../communities/communities.js';
import { DAY_MS } from '../events/rules/retention.js';
import { inEachCommunity, type Job, type JobContext, type JobResult } from '../jobs/job.js';
import { inSnapshot } from '../personal-data/personal-data.sql.js';
import {
  countOldGrounds,
  type ForgetBatch,
  forgetContacts,
  forgetPeople,
  forgetReports,
} from './grounds.sql.js';
import {
  endPass,
  forgetScores,
  type KeptScore,
  nextSubjects,
  readPassed,
  savePassed,
  settledScores,
} from './pass.sql.js';
import { CLAIMS, scoringRules } from './rules.js';
import { type ComputedScore, computeScores, markDue } from './scores.sql.js';
import { readClaimKeys, readSweeps } from './scoring-rules.sql.js';
import { reviewStanding } from './standing.sql.js';

/** Grounds are kept for longer than they count, so that a wider window finds some. */
const MARGIN_DAYS = 30;
/** Greater than every key. */
const PASSED = 'ff'.repeat(33);

export const trustPass: Job = {
  name: 'trust-pass',
  cron: '17 3 * * *',
  fill: '1d',
  about: 'computes every score of trust again, counts and corrects those that differ, and grants standing',
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

/** Communities whose rules are not being changed; for the others every score is computed anyway. */
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

/** Each page reads one snapshot and takes no locks. */
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
      report(context, community, page.wrong);
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
    const scope = { community, claim, subjects };
    const { kept, due } = await settledScores(client, scope, now);
    for (const score of await computeScores(client, scope, rules, now)) {
      const { subject } = score;
      if (!due.has(subject) && !isSame(score, kept.get(subject)!)) wrong.add(subject);
    }
  }
  return [...wrong];
}

function isSame(computed: ComputedScore, { score, grounded, changesAt }: KeptScore): boolean {
  return computed.score === score && computed.grounded === grounded && computed.changesAt === changesAt;
}

function report({ metrics, log }: JobContext, { slug }: Community, wrong: readonly string[]): void {
  metrics?.trustCorrections.inc(wrong.length);
  log?.warn(
    { community: slug, people: wrong.length },
    'trust scores differed from their grounds and are computed again',
  );
}

const keptSince = ({ now }: Pick<JobContext, 'now'>, { settings }: Community): number =>
  now() - (settings['trust.windowDays'] + MARGIN_DAYS) * DAY_MS;

export const forgetTrust: Job = {
  name: 'forget-trust',
  cron: '53 4 * * *',
  fill: '1d',
  about: 'deletes reports and contacts that no longer count, and scores without grounds',
  purges: false,
  run: async (context, client) => {
    const { communities, bounds } = context;
    const before = new Map(communities.all().map((each) => [each.id, keptSince(context, each)]));
    const walks = [
      await walk(context, (after) => forgetContacts(client, before, after, bounds.rows)),
      await walk(context, (after) => forgetPeople(client, after, bounds.rows)),
    ];
    const rest = await inEachCommunity(context, async ({ id }) => {
      const reports = await forgetReports(client, id, before.get(id)!, bounds.rows);
      return reports + (await forgetScores(client, id, before.get(id)!, bounds.rows));
    });
    const all = [...walks, rest];
    return {
      changed: all.reduce((sum, { changed }) => sum + changed, 0),
      more: all.some(({ more }) => more),
    };
  },
  dryRun: async (context, client) => {
    let rows = 0;
    for (const community of context.communities.all())
      rows += await countOldGrounds(client, community.id, keptSince(context, community));
    return rows === 0 ? [] : [{ reason: 'old', class: 'ground', rows }];
  },
};

/** All of it, in batches. A batch that deletes nothing reads one page and is not counted. */
async function walk(
  { bounds, signal }: Pick<JobContext, 'bounds' | 'signal'>,
  batch: (after: number) => Promise<ForgetBatch>,
): Promise<JobResult> {
  let changed = 0;
  let left = bounds.batches;
  let after: number | undefined = 0;
  while (after !== undefined) {
    if (left === 0 || signal.aborted) return { changed, more: true };
    const done: ForgetBatch = await batch(after);
    changed += done.deleted;
    if (done.deleted > 0) left -= 1;
    after = done.after;
  }
  return { changed, more: false };
}
