/**
 * The communities of this node with their settings, kept fresh on every instance by polling one number.
 * A reader asks again for each message, so that a change takes effect without a restart.
 */
import { setTimeout as delay } from 'node:timers/promises';
import type { Pool } from 'pg';
import { CompiledBlocks } from './blocks.js';
import type { Blocks } from './core/blocks.js';
import { AT_EASE, type Capacity, STEP_WORDS, type Step } from './core/capacity.js';
import type { RefusedAs } from './core/membership.js';
import type { PolicyRef } from './core/policies.js';
import type { TopicSubscription } from './core/retention.js';
import type { DoorRules } from './core/rule-match.js';
import { type Settings, settingsFrom } from './core/settings.js';
import { CompiledRules } from './door-rules.js';
import type { Log } from './log.js';
import { NO_BLOCKS, readBlocks } from './store/blocks.js';
import { readCapacities } from './store/capacity.js';
import { type CommunityRow, DEFAULT_SLUG, readCommunities, readConfigVersions } from './store/communities.js';
import { readEnabledRules } from './store/moderation-rules.js';
import { readTopics } from './store/topics.js';

const POLL_MS = 500;

export interface Community {
  readonly id: number;
  readonly slug: string;
  readonly host: string | undefined;
  readonly settings: Settings;
  /** When auth.mode was set, in milliseconds. */
  readonly authModeAt: number;
  /** Keys of members who are disabled, whose account is deleted, or who are being erased. */
  readonly refused: ReadonlyMap<string, RefusedAs>;
  /** Seconds: up to then events are of an erased community that had this name. */
  readonly refusedUntil: number | undefined;
  /** Operators that were added to those of MINATO_ADMIN_PUBKEYS. */
  readonly operators: ReadonlySet<string>;
  /** What is current of the texts that members agree to. */
  readonly policies: readonly PolicyRef[];
  /** Public keys by the names that the operator gave (NIP-05). */
  readonly names: ReadonlyMap<string, string>;
  /** The relay's own public key (NIP-11 `self`), once it is made. */
  readonly self: string | undefined;
  /** What the operator keeps out at the door. */
  readonly blocks: Blocks;
  /** Rules of moderation that refuse at the door, and those that go before them. */
  readonly rules: DoorRules;
  /** Topics with rules of their own or with subscribers; those that are enabled are carried. */
  readonly topics: ReadonlyMap<string, TopicSubscription>;
  /** How short space is, by the steps in force. */
  readonly capacity: Capacity;
  /** What was past its days when the rules were last changed came in before this; and versions were superseded before that. */
  readonly keptSince: number;
  readonly historyKeptSince: number;
}

export interface Communities {
  all(): readonly Community[];
  /** The community as it is now, or undefined when it is gone. */
  get(id: number): Community | undefined;
  /** By the path's slug if there is one, else by host name, else the default. An unknown slug finds nothing. */
  find(host: string | undefined, slug: string | undefined): Community | undefined;
  /**
   * One that is being erased, by its id, by the path's slug or by host name: only readers of its outbox still
   * find it (I17).
   */
  getClosing(id: number): Community | undefined;
  findClosing(host: string | undefined, slug: string | undefined): Community | undefined;
  /** Grows with every right of a member, in any community. */
  rightsVersion(): number;
  /** Looks at once, instead of at the next poll. */
  refresh(): Promise<void>;
  /** What is known of the key of the erased, once there is one. */
  subjectPrint(): string | undefined;
  /** Called after each poll, whether something changed or not, one after another. */
  afterPoll(listener: () => Promise<void> | void): void;
  stop(): Promise<void>;
}

export async function watchCommunities(pool: Pool, log: Log): Promise<Communities> {
  const stopping = new AbortController();
  const listeners: (() => Promise<void> | void)[] = [];
  let version = -1;
  let rightsVersion = -1;
  let subjectPrint: string | null = null;
  let failing = false;
  let byId = new Map<number, Community>();
  let closing = new Map<number, Community>();
  const compiled = new CompiledBlocks();
  const compiledRules = new CompiledRules();

  const read = async (): Promise<void> => {
    const { version: current, ...others } = await readConfigVersions(pool);
    rightsVersion = others.rightsVersion;
    subjectPrint = others.subjectPrint;
    if (current === version) return;
    const rows = await readCommunities(pool);
    const closingRows = await readCommunities(pool, { closing: true });
    const topics = await readTopics(pool);
    const capacities = await readCapacities(pool);
    const blocks = await readBlocks(pool);
    const rules = await readEnabledRules(pool);
    const before = version === -1 ? undefined : byId;
    const communityOf = (row: CommunityRow): [number, Community] => {
      const { id, slug, host, settings, authModeAt, refused, refusedUntil, operators, policies } = row;
      const { keptSince, historyKeptSince, names, self } = row;
      const community = {
        id,
        slug,
        host: host ?? undefined,
        settings: settingsFrom(settings),
        authModeAt,
        refused: new Map(Object.entries(refused)),
        refusedUntil: refusedUntil ?? undefined,
        operators: new Set(operators),
        policies,
        names: namesOf(names, refused),
        self: self ?? undefined,
        blocks: compiled.of(id, blocks.get(id) ?? NO_BLOCKS),
        rules: compiledRules.of(id, rules.get(id) ?? []),
        topics: topics.get(id) ?? new Map(),
        capacity: capacities.get(id) ?? AT_EASE,
        keptSince,
        historyKeptSince,
      };
      return [id, community];
    };
    byId = new Map(rows.map(communityOf));
    closing = new Map(closingRows.map(communityOf));
    version = current;
    // At a start the steps are old news, and a command would repeat them each time.
    if (before !== undefined) {
      for (const community of byId.values())
        logSteps(log, community, before.get(community.id)?.capacity ?? AT_EASE);
    }
  };

  /** One after another: what was read first never takes the place of what was read later. */
  let reading: Promise<void> = Promise.resolve();
  const refresh = (): Promise<void> => {
    reading = reading.catch(() => undefined).then(read);
    return reading;
  };

  /** What fails in one listener is neither the other listeners' nor the settings' affair. */
  const tell = async (listener: () => Promise<void> | void): Promise<void> => {
    try {
      await listener();
    } catch (error) {
      log.error({ error: String(error) }, 'what follows a change of settings failed');
    }
  };

  const poll = async (): Promise<void> => {
    while (!stopping.signal.aborted) {
      await delay(POLL_MS, undefined, { signal: stopping.signal }).catch(() => undefined);
      if (stopping.signal.aborted) return;
      const problem = await refresh().then(
        () => undefined,
        (error: unknown) => String(error),
      );
      // Told once when it begins and once when it ends, not twice a second in between.
      if (problem !== undefined && !failing) log.warn({ error: problem }, 'settings cannot be read');
      if (problem === undefined && failing) log.info('settings can be read again');
      failing = problem !== undefined;
      for (const listener of listeners) await tell(listener);
    }
  };

  await refresh();
  const polling = poll();
  const all = () => [...byId.values()];
  return {
    all,
    get: (id) => byId.get(id),
    find: (host, slug) => {
      if (slug !== undefined) return all().find((community) => community.slug === slug);
      const named = host === undefined ? undefined : all().find((community) => community.host === host);
      return named ?? all().find((community) => community.slug === DEFAULT_SLUG);
    },
    getClosing: (id) => closing.get(id),
    findClosing: (host, slug) =>
      [...closing.values()].find((community) =>
        slug === undefined ? host !== undefined && community.host === host : community.slug === slug,
      ),
    rightsVersion: () => rightsVersion,
    subjectPrint: () => subjectPrint ?? undefined,
    refresh,
    afterPoll: (listener) => listeners.push(listener),
    stop: () => {
      stopping.abort();
      return polling;
    },
  };
}

/** Of one who is refused, nothing is told. */
function namesOf(
  names: Readonly<Record<string, string>>,
  refused: Readonly<Record<string, unknown>>,
): ReadonlyMap<string, string> {
  return new Map(Object.entries(names).filter(([, pubkey]) => !Object.hasOwn(refused, pubkey)));
}

function logSteps(log: Log, { slug, capacity }: Community, before: Capacity): void {
  const tell = (from: Step, to: Step, topic?: string): void => {
    if (from === to) return;
    const told = { community: slug, ...(topic === undefined ? {} : { topic }), from, to };
    if (to > from) log.warn(told, `space is short: ${STEP_WORDS[to]}`);
    else log.info(told, `there is more space again: ${STEP_WORDS[to]}`);
  };
  const lag = { community: slug, from: before.lag, to: capacity.lag };
  if (lag.to > lag.from) log.warn(lag, `a reader of the outbox is far behind: ${STEP_WORDS[lag.to]}`);
  if (lag.to < lag.from) log.info(lag, `the readers of the outbox are catching up: ${STEP_WORDS[lag.to]}`);
  tell(before.step, capacity.step);
  for (const topic of new Set([...before.topics.keys(), ...capacity.topics.keys()])) {
    tell(before.topics.get(topic) ?? 0, capacity.topics.get(topic) ?? 0, topic);
  }
}
