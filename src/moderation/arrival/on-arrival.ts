/**
 * Applies rules that hold, hide or refuse to every event that reaches the lane, by whichever path. The lane
 * decides under its lock by the rules in force, so an event that they hold or hide is never served (I16). The
 * consumer labels events that are served.
 */
import type { ClientBase } from 'pg';
import type { Communities } from '../../communities/communities.js';
import { writeHeld } from '../../events/postgres/lane/held.sql.js';
import { type ArrivalFacts, type Judgement, ratedRules } from '../../events/rules/batch/judged.js';
import type { Submission } from '../../events/rules/facts.js';
import type { BatchWrites } from '../../events/rules/writes.js';
import { readSettled } from '../judge.sql.js';
import { inSteps } from '../patterns/thread.js';
import { type RateQuery, readRates, writeCounted, writeRulings } from './on-arrival.sql.js';
import { addPendingLabels } from './pending-labels.sql.js';
import { judgeArrival } from './rules.js';

/** Which rules of one version the events of a batch match; events that match none are left out. */
export interface JudgedBatch {
  readonly version: number;
  readonly judgements: ReadonlyMap<Submission, Judgement>;
}

export class OnArrival {
  constructor(private readonly communities: Pick<Communities, 'get' | 'rulesVersion' | 'refresh'>) {}

  /** Runs before the lock, in time slices. An event already judged by this version is not judged again. */
  async judge(submissions: readonly Submission[]): Promise<JudgedBatch> {
    // Read once, so that the whole batch is judged by one version while others are loaded.
    const version = this.communities.rulesVersion();
    const judging = new Map(
      submissions.map(({ community }) => [community, this.communities.get(community)] as const),
    );
    const judgements = new Map<Submission, Judgement>();
    for (const submission of submissions) {
      const community = judging.get(submission.community);
      if (community === undefined || community.rules.deciding.length === 0) continue;
      const { event, judgement: before } = submission;
      const judgement = before?.version === version ? before : await inSteps(judgeArrival(event, community));
      if (judgement.met.length > 0) judgements.set(submission, judgement);
    }
    return { version, judgements };
  }

  /** Called when the rules have changed. */
  refresh(): Promise<void> {
    return this.communities.refresh();
  }

  async readFacts(
    client: ClientBase,
    { judgements }: JudgedBatch,
    now: number,
  ): Promise<ArrivalFacts | undefined> {
    if (judgements.size === 0) return undefined;
    const queries = new Map<string, RateQuery>();
    for (const [{ event }, judgement] of judgements)
      for (const rule of ratedRules(judgement))
        queries.set(`${rule.ruleId}/${event.pubkey}`, { rule, pubkey: event.pubkey });
    const refs = [...judgements.keys()].map(({ community, event: { id } }) => ({ community, id }));
    const [counts, { restored }] = await Promise.all([
      readRates(client, [...queries.values()], now),
      readSettled(client, refs),
    ]);
    return { judgements, counts, restored };
  }

  /**
   * Writes held events with their actions and cases, and the counts of rates, in the lane's transaction.
   * `hold` stores the events themselves, where they are not in PostgreSQL.
   */
  async write(
    client: ClientBase,
    { held, counted }: Pick<BatchWrites, 'held' | 'counted'>,
    now: number,
    hold: typeof writeHeld = writeHeld,
  ): Promise<void> {
    await Promise.all([
      held.length === 0 ? undefined : hold(client, held, now),
      writeRulings(client, held, now),
      writeCounted(client, counted, now),
      addPendingLabels(client, held, now),
    ]);
  }
}
