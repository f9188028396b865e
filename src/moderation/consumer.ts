/**
 * The outbox consumer that labels events by the community's rules and turns reports into cases. Rules that
 * hold, hide or refuse were applied on arrival (arrival/on-arrival.ts), except for events that an earlier
 * version of the node stored. Its transaction only writes what is to be done. A follow-up removes, restores
 * and publishes labels through the lane. Rules and their actions are primary data: a replay or a rebuild
 * changes nothing (I9).
 */
import type { ClientBase, Pool } from 'pg';
import type { Communities } from '../communities/communities.js';
import { type NostrEvent, serializeEvent } from '../events/rules/event.js';
import { isAmong } from '../events/rules/kinds.js';
import { isRefusal } from '../events/rules/reply.js';
import type { EventStore } from '../events/store.js';
import type { StoredEvents } from '../events/stored-events.js';
import type { NodeKeys } from '../keys/keys.js';
import {
  FIRST_LABEL,
  type KeptLabel,
  type LabelPlace,
  notePublished,
  noteWithdrawn,
  unpublishedLabels,
} from '../labels/labels.sql.js';
import { labelTemplates, type Template, withdrawalTemplate } from '../labels/rules.js';
import { rest } from '../limits/time-slices.js';
import type { Log } from '../node/log.js';
import { type Change, eventOf } from '../outbox/changes.sql.js';
import type { Consumer } from '../outbox/consumers/consumer.js';
import { caseReports } from '../reports/cases.sql.js';
import { KIND_REPORT } from '../reports/rules.js';
import { asMatched } from '../topics/rules.js';
import { readJudgedAfter } from './arrival/on-arrival.sql.js';
import { stepBatch } from './batches.sql.js';
import { authorOf } from './cases.sql.js';
import {
  type Counted,
  countRates,
  forgetRates,
  labelByRule,
  ownKeys,
  rateKey,
  readSettled,
  removeByRule,
} from './judge.sql.js';
import { inSteps } from './patterns/thread.js';
import { carryOut } from './pending-actions.js';
import { RATE_SECONDS_MAX, type Rule } from './rules.js';
import { type CompiledRule, compileRule, inOrder, matchRules, verdictOf } from './rules-match.js';
import { readEnabledRules } from './stored-rules.sql.js';
import { isAnyWaiting } from './waiting.sql.js';

const LABELS_MAX = 50;
const PUBLISH_AGAIN_MS = 10_000;
/** Longer than any rate looks back, so that an event which is read again is counted with its neighbours. */
const RATES_KEPT_MS = 2 * RATE_SECONDS_MAX * 1_000;
const RATES_FORGOTTEN_MAX = 1_000;

export interface ModerationOptions {
  readonly communities: Pick<Communities, 'get'>;
  readonly pool: Pool;
  readonly store: Pick<EventStore, 'hide' | 'restore' | 'submit' | 'stored'>;
  readonly keys: Pick<NodeKeys, 'pubkey' | 'signAs'>;
  readonly log: Pick<Log, 'warn'>;
  readonly now: () => number;
}

export function moderationConsumer(options: ModerationOptions): Consumer {
  const judging = new Judging(options);
  const publishing = new Publishing(options);
  return {
    name: 'moderation',
    about: 'rules, cases of reports, and labels',
    apply: (batch, tx) => judging.apply(batch, tx),
    followUp: async () => {
      const { pool, now } = options;
      if (!(await isAnyWaiting(pool, now() - RATES_KEPT_MS))) return false;
      const forgotten = await forgetRates(pool, now() - RATES_KEPT_MS, RATES_FORGOTTEN_MAX);
      const settingsOf = (id: number) => options.communities.get(id)?.settings;
      const batched = await stepBatch(pool, options.store.stored, settingsOf, now());
      const carriedOut = await carryOut(options);
      const published = await publishing.next();
      return batched || carriedOut || published || forgotten === RATES_FORGOTTEN_MAX;
    },
  };
}

// ── Applying rules to a batch of the outbox ────────────────────────────────────────────────────────────────

interface Match {
  readonly change: Change;
  readonly event: NostrEvent;
  readonly met: readonly CompiledRule[];
}

class Judging {
  /** By rule id; compiled again when the version changes. */
  private readonly compiled = new Map<string, CompiledRule>();
  private judgedAfter: number | undefined;

  constructor(private readonly options: ModerationOptions) {}

  async apply(batch: readonly Change[], tx: ClientBase): Promise<void> {
    const upserts = batch.filter(({ op, payload }) => op === 'upsert' && payload !== undefined);
    if (upserts.length === 0) return;
    const now = this.options.now();
    const reports = upserts.filter(({ kind }) => kind === KIND_REPORT);
    await caseReports(tx, this.options.store.stored, reports, now);
    const rules = await this.rulesInForce(tx);
    if (rules.size === 0) return;
    const own = await ownKeys(tx);
    const others = upserts.filter(({ community, author }) => !own.get(community)?.has(author));
    this.judgedAfter ??= await readJudgedAfter(tx);
    const met = await this.meet(others, rules, this.judgedAfter);
    if (met.length > 0) await judge(tx, this.options.store.stored, met, now);
  }

  /** Read in the transaction of the batch, so that a rule applies to the whole batch or to none of it. */
  private async rulesInForce(tx: ClientBase): Promise<Map<number, CompiledRule[]>> {
    const enabled = await readEnabledRules(tx);
    const all = [...enabled.values()].flat();
    for (const known of this.compiled.keys())
      if (!all.some(({ ruleId }) => ruleId === known)) this.compiled.delete(known);
    const byCommunity = new Map<number, CompiledRule[]>();
    for (const [community, rules] of enabled) {
      const judging = rules.filter(({ action }) => action !== 'refuse');
      if (judging.length > 0) byCommunity.set(community, inOrder(judging.map((rule) => this.compile(rule))));
    }
    return byCommunity;
  }

  private compile(rule: Rule): CompiledRule {
    const known = this.compiled.get(rule.ruleId);
    // The priority can change without a new version.
    const compiled = known?.rule.version === rule.version ? { ...known, rule } : compileRule(rule);
    this.compiled.set(rule.ruleId, compiled);
    return compiled;
  }

  private async meet(
    upserts: readonly Change[],
    rules: ReadonlyMap<number, readonly CompiledRule[]>,
    judgedAfter: number,
  ): Promise<Match[]> {
    const matches: Match[] = [];
    for (const change of upserts) {
      const ordered = rules.get(change.community);
      const settings = this.options.communities.get(change.community)?.settings;
      if (ordered === undefined || settings === undefined) continue;
      const event = asMatched(eventOf(change)!, change.bound);
      // A rule does not judge events that arrived before it was enabled, however often they are read again.
      const inForce = ordered.filter(({ rule }) => (rule.enabledAt ?? Infinity) <= change.ingestedAt);
      const isPrivate = isAmong(change.kind, settings['auth.privateKinds']);
      // A label is public and would reveal that a private event exists.
      const applicable = inForce.filter(({ rule: { action } }) =>
        action === 'label' ? !isPrivate : change.seq <= judgedAfter,
      );
      const met = await inSteps(matchRules(event, settings, applicable));
      if (met.length > 0) matches.push({ change, event, met });
      await rest();
    }
    return matches;
  }
}

async function judge(
  tx: ClientBase,
  stored: StoredEvents,
  matches: readonly Match[],
  now: number,
): Promise<void> {
  const over = await countRates(
    tx,
    matches.flatMap((one) => countedOf(one, now)),
  );
  const { decided, restored } = await readSettled(
    tx,
    matches.map(({ change }) => change),
  );
  for (const { change, met } of matches) {
    const { community, id, author, topics } = change;
    const key = `${community}/${id}`;
    if (restored.has(key)) continue;
    const { labels, decides } = verdictOf(met, (rule) => over.has(rateKey(rule, id)));
    const judged = { community, id, author, topics };
    for (const rule of labels) await labelByRule(tx, rule, judged, now);
    if (decides !== undefined && !decided.has(key)) await removeByRule(tx, stored, decides, judged, now);
  }
}

function countedOf({ change, met }: Match, now: number): Counted[] {
  const { community, id, author, ingestedAt: at, seq } = change;
  if (at < now - RATES_KEPT_MS) return [];
  return met.flatMap(({ rule }) =>
    rule.conditions.rate === undefined ? [] : [{ rule, community, id, author, at, seq }],
  );
}

// ── Labels as events ───────────────────────────────────────────────────────────────────────────────────────

/**
 * Publishes labels, the oldest first. A label that cannot be published, for example because the secret of its
 * key is missing, does not hold up the others: the walk continues after it, and starts again from the oldest
 * label after PUBLISH_AGAIN_MS.
 */
class Publishing {
  private after: LabelPlace = FIRST_LABEL;
  private againAt = 0;
  /** Signers that failed since the walk began: their other labels would fail too. */
  private readonly failing = new Set<string>();
  /** Signers whose failure was logged. */
  private readonly logged = new Set<string>();

  constructor(private readonly options: ModerationOptions) {}

  /** Returns true when more may be left. */
  async next(): Promise<boolean> {
    if (performance.now() >= this.againAt) {
      this.after = FIRST_LABEL;
      this.failing.clear();
    }
    const labels = await unpublishedLabels(this.options.pool, this.after, LABELS_MAX);
    for (const label of labels) await this.attempt(label);
    if (this.failing.size > 0) this.after = labels.at(-1) ?? this.after;
    return labels.length === LABELS_MAX;
  }

  private async attempt(label: KeptLabel): Promise<void> {
    let who = `${label.community}`;
    try {
      const signer = await signerOf(this.options, label);
      who = `${label.community}/${signer}`;
      if (this.failing.has(who)) return;
      if (label.withdrawnAt === null) await publish(this.options, label, signer);
      else await withdraw(this.options, label, label.withdrawnAt, signer);
      this.logged.delete(who);
    } catch (error) {
      this.putOff(who, error);
    }
  }

  private putOff(who: string, error: unknown): void {
    if (this.failing.size === 0) this.againAt = performance.now() + PUBLISH_AGAIN_MS;
    this.failing.add(who);
    if (this.logged.has(who)) return;
    this.logged.add(who);
    this.options.log.warn({ error: String(error), signer: who }, 'labels cannot be published');
  }
}

/** The key that signed the label withdraws it. A label that is not published yet uses the current key. */
async function signerOf({ pool, keys, store }: ModerationOptions, put: KeptLabel): Promise<string> {
  const { community, labelEvent, withdrawnAt } = put;
  const before =
    withdrawnAt === null || labelEvent === null
      ? undefined
      : await authorOf(pool, store.stored, { community, id: labelEvent });
  return before ?? (await keys.pubkey(community, 'moderation'));
}

async function publish(options: ModerationOptions, put: KeptLabel, signer: string): Promise<void> {
  const { pool, now } = options;
  const templates = labelTemplates(put);
  const label = await submit(options, put.community, templates.label, signer);
  const claim = await submit(options, put.community, templates.claim, signer);
  await notePublished(pool, put.labelId, { label, claim }, now());
}

async function withdraw(
  options: ModerationOptions,
  put: KeptLabel,
  withdrawnAt: number,
  signer: string,
): Promise<void> {
  const { pool, now, keys } = options;
  const { community, labelId, labelEvent } = put;
  const templates = labelTemplates(put);
  const idOf = async (template: Template) => (await keys.signAs(signer, 'moderation', template)).id;
  const events = [
    labelEvent ?? (await idOf(templates.label)),
    put.claimEvent ?? (await idOf(templates.claim)),
  ];
  const seconds = Math.max(put.signedAt, Math.floor(withdrawnAt / 1_000));
  await submit(options, community, withdrawalTemplate(events, seconds), signer);
  await noteWithdrawn(pool, labelId, now());
}

/**
 * The same template gives the same event, so submitting it again is safe. A permanent refusal counts as
 * published: a retry would be refused too.
 */
async function submit(
  { keys, store }: ModerationOptions,
  community: number,
  template: Template,
  signer: string,
): Promise<string> {
  const event = await keys.signAs(signer, 'moderation', template);
  const outcome = await store.submit({ community, event, payload: serializeEvent(event) });
  if (isRefusal(outcome) && (outcome.refused === 'error' || outcome.refused === 'rate-limited'))
    throw new Error(`a label could not be published: ${outcome.why}`);
  return event.id;
}
