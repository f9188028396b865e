/**
 * The consumer of the outbox that judges events by the community's rules and makes cases of reports. In its transaction it only writes
 * what is to be done; removing, restoring and publishing labels follow from it and go through the lane. Rules and what they did are
 * primary data: a replay or a rebuild changes nothing (I9).
 */
import type { ClientBase, Pool } from 'pg';
import type { Communities } from '../communities.js';
import { type NostrEvent, serializeEvent } from '../core/event.js';
import { isAmong } from '../core/kinds.js';
import { labelTemplates, type Template, withdrawalTemplate } from '../core/labels.js';
import { RATE_SECONDS_MAX, type Rule } from '../core/moderation.js';
import { isRefusal } from '../core/reply.js';
import { KIND_REPORT } from '../core/report.js';
import { askRules, type CompiledRule, compileRule, inOrder, verdictOf } from '../core/rule-match.js';
import { asMatched } from '../core/topic.js';
import type { NodeKeys } from '../keys.js';
import type { Lane } from '../lane.js';
import type { Log } from '../log.js';
import { carryOut } from '../orders.js';
import type { Change } from '../store/changes.js';
import {
  FIRST_LABEL,
  type KeptLabel,
  type LabelPlace,
  notePublished,
  noteWithdrawn,
  unpublishedLabels,
} from '../store/labels.js';
import {
  type Counted,
  countRates,
  forgetRates,
  labelByRule,
  ownKeys,
  rateKey,
  readSettled,
  removeByRule,
} from '../store/moderation.js';
import { stepBatch } from '../store/moderation-batches.js';
import { authorOf, caseReports } from '../store/moderation-cases.js';
import { readEnabledRules } from '../store/moderation-rules.js';
import { inTurns, Turns } from '../turns.js';
import type { Consumer } from './consumer.js';

const LABELS_MAX = 50;
const PUBLISH_AGAIN_MS = 10_000;
/** Longer than any rate looks back, so that an event which comes again is counted with those that it came with. */
const RATES_KEPT_MS = 2 * RATE_SECONDS_MAX * 1_000;
const RATES_FORGOTTEN_MAX = 1_000;

export interface ModerationOptions {
  readonly communities: Pick<Communities, 'get'>;
  readonly pool: Pool;
  readonly lane: Pick<Lane, 'hide' | 'restore' | 'submit'>;
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
      const forgotten = await forgetRates(pool, now() - RATES_KEPT_MS, RATES_FORGOTTEN_MAX);
      const batched = await stepBatch(pool, (id) => options.communities.get(id)?.settings, now());
      const ordered = await carryOut(options);
      const published = await publishing.next();
      return batched || ordered || published || forgotten === RATES_FORGOTTEN_MAX;
    },
  };
}

// ── What a batch gives rise to ────────────────────────────────────────────────────────────────────────────────────

interface Case {
  readonly change: Change;
  readonly event: NostrEvent;
  readonly met: readonly CompiledRule[];
}

class Judging {
  /** By rule; made anew when its version is another. */
  private readonly compiled = new Map<string, CompiledRule>();

  constructor(private readonly options: ModerationOptions) {}

  async apply(batch: readonly Change[], tx: ClientBase): Promise<void> {
    const upserts = batch.filter(({ op, payload }) => op === 'upsert' && payload !== undefined);
    if (upserts.length === 0) return;
    const now = this.options.now();
    const reports = upserts.filter(({ kind }) => kind === KIND_REPORT);
    await caseReports(tx, reports, now);
    const rules = await this.rulesInForce(tx);
    if (rules.size === 0) return;
    const own = await ownKeys(tx);
    const others = upserts.filter(({ community, author }) => !own.has(`${community}/${author}`));
    const met = await this.meet(others, rules);
    if (met.length > 0) await judge(tx, met, now);
  }

  /** Read with the batch itself, so that a rule is known in all of it or in nothing of it. */
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
    // Its priority may change without its version.
    const compiled = known?.rule.version === rule.version ? { ...known, rule } : compileRule(rule);
    this.compiled.set(rule.ruleId, compiled);
    return compiled;
  }

  private async meet(
    upserts: readonly Change[],
    rules: ReadonlyMap<number, readonly CompiledRule[]>,
  ): Promise<Case[]> {
    const cases: Case[] = [];
    const turns = new Turns();
    for (const change of upserts) {
      const ordered = rules.get(change.community);
      const settings = this.options.communities.get(change.community)?.settings;
      if (ordered === undefined || settings === undefined) continue;
      const event = asMatched(JSON.parse(change.payload!) as NostrEvent, change.bound);
      // What came in before a rule was enabled is not its to judge, however often it is read again.
      const inForce = ordered.filter(({ rule }) => (rule.enabledAt ?? Infinity) <= change.ingestedAt);
      const isSealed = isAmong(change.kind, settings['auth.privateKinds']);
      // A label is public, and that such an event exists is not.
      const asked = inForce.filter(({ rule }) => !(isSealed && rule.action === 'label'));
      const met = await inTurns(askRules(event, settings, asked), turns);
      if (met.length > 0) cases.push({ change, event, met });
      await turns.rest();
    }
    return cases;
  }
}

async function judge(tx: ClientBase, cases: readonly Case[], now: number): Promise<void> {
  const over = await countRates(
    tx,
    cases.flatMap((one) => countedOf(one, now)),
  );
  const { decided, restored } = await readSettled(
    tx,
    cases.map(({ change }) => change),
  );
  for (const { change, met } of cases) {
    const { community, id, author, topics } = change;
    const key = `${community}/${id}`;
    if (restored.has(key)) continue;
    const { labels, decides } = verdictOf(met, (rule) => over.has(rateKey(rule, id)));
    const judged = { community, id, author, topics };
    for (const rule of labels) await labelByRule(tx, rule, judged, now);
    if (decides !== undefined && !decided.has(key)) await removeByRule(tx, decides, judged, now);
  }
}

function countedOf({ change, met }: Case, now: number): Counted[] {
  const { community, id, author, ingestedAt: at, seq } = change;
  if (at < now - RATES_KEPT_MS) return [];
  return met.flatMap(({ rule }) =>
    rule.conditions.rate === undefined ? [] : [{ rule, community, id, author, at, seq }],
  );
}

// ── Labels as events ──────────────────────────────────────────────────────────────────────────────────────────────

/**
 * A label that cannot be published, as without the secret of its key, waits, and no other waits with it: the walk goes on behind it, and
 * starts from the oldest again after some time.
 */
class Publishing {
  private after: LabelPlace = FIRST_LABEL;
  private againAt = 0;
  /** Signers that failed since the walk began: their other labels would too. */
  private readonly failing = new Set<string>();
  /** Signers whose failure is in the log. */
  private readonly told = new Set<string>();

  constructor(private readonly options: ModerationOptions) {}

  /** True when more may be left. */
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
      this.told.delete(who);
    } catch (error) {
      this.putOff(who, error);
    }
  }

  private putOff(who: string, error: unknown): void {
    if (this.failing.size === 0) this.againAt = performance.now() + PUBLISH_AGAIN_MS;
    this.failing.add(who);
    if (this.told.has(who)) return;
    this.told.add(who);
    this.options.log.warn({ error: String(error), signer: who }, 'labels cannot be published');
  }
}

/** A label is withdrawn by the key that signed it; where it may not have been published yet, by the one that would. */
async function signerOf({ pool, keys }: ModerationOptions, put: KeptLabel): Promise<string> {
  const { community, labelEvent, withdrawnAt } = put;
  const before =
    withdrawnAt === null || labelEvent === null ? undefined : await authorOf(pool, community, labelEvent);
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

/** The same template is the same event, so it may be submitted again. One that is refused for good has nothing to tell any more. */
async function submit(
  { keys, lane }: ModerationOptions,
  community: number,
  template: Template,
  signer: string,
): Promise<string> {
  const event = await keys.signAs(signer, 'moderation', template);
  const outcome = await lane.submit({ community, event, payload: serializeEvent(event) });
  if (isRefusal(outcome) && (outcome.refused === 'error' || outcome.refused === 'rate-limited'))
    throw new Error(`a label could not be published: ${outcome.why}`);
  return event.id;
}
