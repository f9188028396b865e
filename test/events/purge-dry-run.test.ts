/**
 * A dry run and the purge after it agree. On random events, rules and times, each job purges what the dry run
 * of all jobs reported, by reason, class and topic, also where one job makes or leaves work for another.
 */
import fc from 'fast-check';
import { afterAll, beforeAll, expect, it } from 'vitest';
import type { NostrEvent } from '../../src/events/rules/event.js';
import { DAY_MS } from '../../src/events/rules/retention.js';
import { BOUNDS, type DryRunCount, type JobContext } from '../../src/jobs/job.js';
import { JOBS } from '../../src/jobs/list.js';
import { dryRunJobs } from '../../src/jobs/run.js';
import { Tally } from '../../src/jobs/tally.js';
import { eventually } from '../support/cli.js';
import { writeTopic } from '../support/domains/topics.js';
import { hash, type Life, openLife, unsigned } from '../support/stores/life.js';

const START = Date.UTC(2031, 0, 10);
const RULES = [
  {
    settings: {
      'retention.regularDays': 3,
      'retention.dedupeDays': 1,
      'retention.outboxDays': 2,
      'deletion.auditDays': 1,
    },
    topics: { wind: { retentionDays: 40, maxEvents: 8 }, sea: { maxBytes: 2_000 } },
  },
  {
    settings: {
      'retention.regularDays': 20,
      'retention.outboxDays': 1,
      'deletion.auditDays': 0,
      'deletion.keepRequestsDays': 10,
      'capacity.maxEvents': 25,
    },
  },
];
const PURGING = JOBS.filter(({ purges, name }) => purges && name !== 'erase');
const ANNOUNCED = {
  expire: 'expiration',
  retain: 'retention',
  'forget-requests': 'retention',
  capacity: 'capacity',
};

let life: Life;
beforeAll(async () => {
  life = await openLife(START, RULES);
});
afterAll(() => life?.close());

const draft = fc.record({
  community: fc.constantFrom(0, 0, 1),
  kind: fc.constantFrom(1, 1, 1, 1, 6, 0, 30_023, 5),
  author: fc.constantFrom('alice', 'bob'),
  topics: fc.subarray(['wind', 'sea', 'other']),
  lasts: fc.constantFrom(undefined, undefined, 60, 86_400, 400_000),
  target: fc.nat(),
  text: fc.string({ maxLength: 400 }),
});
const round = fc.record({
  drafts: fc.array(draft, { minLength: 10, maxLength: 60, size: 'max' }),
  passes: fc.constantFrom(0, 3_600_000, DAY_MS, 3 * DAY_MS, 12 * DAY_MS, 45 * DAY_MS),
  windDays: fc.constantFrom(2, 40, 100),
});

type Draft = typeof draft extends fc.Arbitrary<infer T> ? T : never;
let written = 0;
const posted: NostrEvent[] = [];
function eventOf({ kind, author, topics, lasts, target, text }: Draft): NostrEvent {
  written += 1;
  const now = Math.floor(life.now / 1_000);
  const pubkey = hash(author);
  const own = posted.filter((event) => event.pubkey === pubkey);
  const tags = topics.map((topic) => ['t', topic]);
  if (kind === 5 && own.length > 0) tags.push(['e', own[target % own.length]!.id]);
  if (kind === 30_023) tags.push(['d', `${target % 5}`]);
  if (lasts !== undefined) tags.push(['expiration', `${now + lasts}`]);
  const event = unsigned({ kind, pubkey, created_at: now, tags, content: `${written} ${text}` });
  posted.push(event);
  return event;
}

async function setWind(retentionDays: number): Promise<void> {
  const community = life.communities[0]!;
  const rules = { pinned: true, public: true, priority: 0, policy: { retentionDays, maxEvents: 8 } };
  await writeTopic(life.database.pool, community, 'wind', rules, life.now);
  await eventually('the rule is known', () => {
    const known = life.writers[0]!.communities.get(community)?.topics.get('wind')?.policy.retentionDays;
    return known === retentionDays || undefined;
  });
}

const lastSeq = async () =>
  (await life.client.query<{ last_seq: number }>('SELECT last_seq FROM lane_state')).rows[0]!.last_seq;

/** What a job announced after an offset, as a dry run would count it. */
async function announced(job: string, reason: string, after: number): Promise<DryRunCount[]> {
  const { rows } = await life.client.query<{ id: string }>(
    `SELECT encode(event_id, 'hex') AS id FROM events_outbox
     WHERE seq > $1 AND op = 'delete' AND reason = $2`,
    [after, reason],
  );
  const tally = new Tally();
  for (const { id } of rows) tally.addEvent(posted.find((event) => event.id === id)!);
  return tally.counts(job === 'expire' ? 'expired' : reason);
}

const byClass = (counts: readonly DryRunCount[]) =>
  [...counts].sort((a, b) => (a.class < b.class ? -1 : 1)).map(({ reason: _reason, ...count }) => count);
const total = (counts: readonly DryRunCount[]) => counts.reduce((sum, { rows }) => sum + rows, 0);

it('a purge removes what its dry run reported, by job, class and topic', {
  timeout: 600_000,
}, async () => {
  const purged = new Map<string, number>();
  const property = fc.asyncProperty(round, async ({ drafts, passes, windDays }) => {
    await setWind(windDays);
    await Promise.all(drafts.map((one) => life.submit(0, life.communities[one.community]!, eventOf(one))));
    life.now += passes;
    const { store, communities, erasing } = life.writers[0]!;
    const { signal } = new AbortController();
    const now = () => life.now;
    const context: JobContext = {
      database: life.database,
      store,
      communities,
      erasing,
      now,
      signal,
      bounds: BOUNDS,
    };
    const said = await dryRunJobs(PURGING, context);
    for (const job of PURGING) {
      const before = await lastSeq();
      const expected = said.filter((count) => count.job === job.name).map(({ job: _job, ...count }) => count);
      const changed = await life.run(job);
      purged.set(job.name, (purged.get(job.name) ?? 0) + changed);
      const reason = ANNOUNCED[job.name as keyof typeof ANNOUNCED];
      if (reason === undefined) expect(changed, job.name).toBe(total(expected));
      else expect(byClass(await announced(job.name, reason, before)), job.name).toEqual(byClass(expected));
    }
    expect(await dryRunJobs(PURGING, context), 'nothing is left').toEqual([]);
  });
  await fc.assert(property, { numRuns: 15, endOnFailure: true });
  const seen = [...purged].filter(([, rows]) => rows > 0).map(([name]) => name);
  expect(seen).toEqual(
    expect.arrayContaining([
      'expire',
      'purge-deleted',
      'retain',
      'drop-months',
      'trim-outbox',
      'forget-requests',
      'capacity',
      'forget-dedupe',
    ]),
  );
});
