/**
 * Caches the communities of this node with their settings, on every instance. Notifications announce a
 * change. One version number is polled as well, more often while notifications may be lost. Callers read the
 * cache for each message, so a change takes effect without a restart.
 */
import type { Pool } from 'pg';
import { NO_BLOCKS, readBlocks } from '../blocks/blocks.sql.js';
import { CompiledBlocks } from '../blocks/compile.js';
import type { Blocks } from '../blocks/rules.js';
import { readCapacities } from '../events/postgres/capacity.js';
import { AT_EASE, type Capacity, STEP_WORDS, type Step } from '../events/rules/capacity.js';
import type { TopicRule } from '../events/rules/retention.js';
import { startPolling } from '../limits/poll-loop.js';
import type { RefusedAs } from '../members/rules.js';
import type { Role } from '../members/rules-roles.js';
import { CompiledRules } from '../moderation/arrival/compile-rules.js';
import type { ArrivalRules } from '../moderation/arrival/rules.js';
import { ownKeys } from '../moderation/judge.sql.js';
import { readEnabledRules } from '../moderation/stored-rules.sql.js';
import type { Log } from '../node/log.js';
import type { PolicyRef } from '../policies/rules.js';
import { readTopics } from '../topics/topics.sql.js';
import {
  CONFIG_CHANNEL,
  type CommunityRow,
  DEFAULT_SLUG,
  readCommunities,
  readConfigVersions,
} from './communities.sql.js';
import { readNodeSettings } from './node-settings.sql.js';
import { NODE_DEFAULTS, type NodeSettings } from './rules-node-settings.js';
import { type Settings, settingsFrom } from './rules-settings.js';

/** Interval of polling without notifications. */
const POLL_MS = 500;
/** Pause between two polls, so that changes in quick succession are read together. */
const GATHER_MS = 200;

/** The source of change notifications (events/wakeups.ts). */
export interface ChangeNotices {
  add(listener: { readonly channel: string; wake(): void }): void;
  pollMs(aloneMs: number): number;
}

export interface Community {
  readonly id: number;
  readonly slug: string;
  readonly host: string | undefined;
  /** The effective settings, limited by the ceilings of the node. */
  readonly settings: Settings;
  /** When auth.mode was set, in milliseconds. */
  readonly authModeAt: number;
  /** Keys of members who are disabled, deleted or being erased. */
  readonly refused: ReadonlyMap<string, RefusedAs>;
  /** Seconds. Events up to this time are refused: they belong to an erased community of the same name. */
  readonly refusedUntil: number | undefined;
  /** Roles by public key, besides the operators of MINATO_ADMIN_PUBKEYS. */
  readonly operators: ReadonlyMap<string, Role>;
  /** The current versions of the texts that members agree to. */
  readonly policies: readonly PolicyRef[];
  /** Public keys by NIP-05 name. */
  readonly names: ReadonlyMap<string, string>;
  /** The relay's own public key (NIP-11 `self`), once it exists. */
  readonly self: string | undefined;
  /** What the operator refuses on arrival. */
  readonly blocks: Blocks;
  /** The enabled moderation rules. */
  readonly rules: ArrivalRules;
  /** Topics with their own rules or with subscribers. Only the enabled ones are carried. */
  readonly topics: ReadonlyMap<string, TopicRule>;
  /** The capacity steps that are active. */
  readonly capacity: Capacity;
  /**
   * Milliseconds. Events that arrived before this were already past retention when the rules last changed.
   * `historyKeptSince` is the same for superseded versions, by when they were superseded.
   */
  readonly keptSince: number;
  readonly historyKeptSince: number;
}

export interface Communities {
  all(): readonly Community[];
  /** Settings of the whole node. */
  node(): NodeSettings;
  /** Between 0 and 1: the part of shared limits that one community may use. */
  share(): number;
  /** The current community, or undefined when it does not exist any more. */
  get(id: number): Community | undefined;
  /**
   * By the slug in the path if given, else by host name, else the default community. An unknown slug finds
   * nothing.
   */
  find(host: string | undefined, slug: string | undefined): Community | undefined;
  /**
   * A community that is being erased, by id, slug or host name. Only readers of its outbox still find it
   * (I17).
   */
  getClosing(id: number): Community | undefined;
  findClosing(host: string | undefined, slug: string | undefined): Community | undefined;
  /** Grows when a right of any member changes, in any community. */
  rightsVersion(): number;
  /** Version of the moderation rules of all communities that this instance has loaded. */
  rulesVersion(): number;
  /** Reads at once instead of at the next poll. */
  refresh(): Promise<void>;
  /** Fingerprint of the erasure key, once it exists. */
  subjectFingerprint(): string | undefined;
  /** Called after each poll, changed or not, one listener after another. */
  afterPoll(listener: () => Promise<void> | void): void;
  stop(): Promise<void>;
}

/** Without notices it only polls. */
export async function watchCommunities(pool: Pool, log: Log, notices?: ChangeNotices): Promise<Communities> {
  const listeners: (() => Promise<void> | void)[] = [];
  let version = -1;
  let rightsVersion = -1;
  let rulesVersion = -1;
  let subjectFingerprint: string | null = null;
  let node = NODE_DEFAULTS;
  let failing = false;
  let byId = new Map<number, Community>();
  let closing = new Map<number, Community>();
  const compiled = new CompiledBlocks();
  const compiledRules = new CompiledRules();

  const read = async (): Promise<void> => {
    const { version: current, ...others } = await readConfigVersions(pool);
    rightsVersion = others.rightsVersion;
    subjectFingerprint = others.subjectFingerprint;
    // Read before the rules themselves, so that these are of this version or a later one.
    const { rulesVersion: rulesNow } = others;
    if (current === version && rulesNow === rulesVersion) return;
    const nodeNow = await readNodeSettings(pool);
    const rows = await readCommunities(pool);
    const closingRows = await readCommunities(pool, { closing: true });
    const topics = await readTopics(pool);
    const capacities = await readCapacities(pool);
    const blocks = await readBlocks(pool);
    const rules = await readEnabledRules(pool);
    const own = await ownKeys(pool);
    const before = version === -1 ? undefined : byId;
    const communityOf = (row: CommunityRow): [number, Community] => {
      const { id, slug, host, settings, authModeAt, refused, refusedUntil, operators, policies } = row;
      const { keptSince, historyKeptSince, names, self } = row;
      const community = {
        id,
        slug,
        host: host ?? undefined,
        settings: settingsFrom(settings, nodeNow),
        authModeAt,
        refused: new Map(Object.entries(refused)),
        refusedUntil: refusedUntil ?? undefined,
        operators: new Map(Object.entries(operators)),
        policies,
        names: namesOf(names, refused),
        self: self ?? undefined,
        blocks: compiled.of(id, blocks.get(id) ?? NO_BLOCKS),
        rules: {
          ...compiledRules.of(id, rules.get(id) ?? []),
          version: rulesNow,
          own: own.get(id) ?? new Set(),
        },
        topics: topics.get(id) ?? new Map(),
        capacity: capacities.get(id) ?? AT_EASE,
        keptSince,
        historyKeptSince,
      };
      return [id, community];
    };
    byId = new Map(rows.map(communityOf));
    closing = new Map(closingRows.map(communityOf));
    node = nodeNow;
    version = current;
    rulesVersion = rulesNow;
    // Not at the start: the steps have not changed, and every command would log them.
    if (before !== undefined) {
      for (const community of byId.values())
        logSteps(log, community, before.get(community.id)?.capacity ?? AT_EASE);
    }
  };

  /** Reads run one after another, so that an older result never replaces a newer one. */
  let reading: Promise<void> = Promise.resolve();
  const refresh = (): Promise<void> => {
    reading = reading.catch(() => undefined).then(read);
    return reading;
  };

  /** A failing listener affects neither the other listeners nor the settings. */
  const notify = async (listener: () => Promise<void> | void): Promise<void> => {
    try {
      await listener();
    } catch (error) {
      log.error({ error: String(error) }, 'a listener failed after settings were polled');
    }
  };

  let isChanged = false;
  let wake = (): void => undefined;
  const onNotice = (): void => {
    isChanged = true;
    wake();
  };
  notices?.add({ channel: CONFIG_CHANNEL, wake: onNotice });
  const untilChanged = (msMax: number): Promise<void> =>
    new Promise((resolve) => {
      const timer = setTimeout(resolve, msMax);
      wake = () => {
        clearTimeout(timer);
        resolve();
      };
    });

  let isStopping = false;
  const poll = async (): Promise<void> => {
    if (!isChanged) await untilChanged((notices?.pollMs(POLL_MS) ?? POLL_MS) - GATHER_MS);
    if (isStopping) return;
    isChanged = false;
    const problem = await refresh().then(
      () => undefined,
      (error: unknown) => String(error),
    );
    // Logged once when it begins and once when it ends, not at every poll in between.
    if (problem !== undefined && !failing) log.warn({ error: problem }, 'cannot read settings');
    if (problem === undefined && failing) log.info('settings can be read again');
    failing = problem !== undefined;
    for (const listener of listeners) await notify(listener);
  };

  await refresh();
  const stopPolling = startPolling(GATHER_MS, poll);
  const all = () => [...byId.values()];
  return {
    all,
    node: () => node,
    // A single community has nobody to share with.
    share: () => (byId.size > 1 ? node['node.communitySharePercent'] / 100 : 1),
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
    rulesVersion: () => rulesVersion,
    subjectFingerprint: () => subjectFingerprint ?? undefined,
    refresh,
    afterPoll: (listener) => listeners.push(listener),
    stop: () => {
      isStopping = true;
      wake();
      return stopPolling();
    },
  };
}

/** Members who are refused have no name. */
function namesOf(
  names: Readonly<Record<string, string>>,
  refused: Readonly<Record<string, unknown>>,
): ReadonlyMap<string, string> {
  return new Map(Object.entries(names).filter(([, pubkey]) => !Object.hasOwn(refused, pubkey)));
}

function logSteps(log: Log, { slug, capacity }: Community, before: Capacity): void {
  const tell = (from: Step, to: Step, topic?: string): void => {
    if (from === to) return;
    const change = { community: slug, ...(topic === undefined ? {} : { topic }), from, to };
    if (to > from) log.warn(change, `space is short: ${STEP_WORDS[to]}`);
    else log.info(change, `space is less short: ${STEP_WORDS[to]}`);
  };
  const lag = { community: slug, from: before.lag, to: capacity.lag };
  if (lag.to > lag.from) log.warn(lag, `a consumer of the outbox is far behind: ${STEP_WORDS[lag.to]}`);
  if (lag.to < lag.from) log.info(lag, `the consumers of the outbox are catching up: ${STEP_WORDS[lag.to]}`);
  tell(before.step, capacity.step);
  for (const topic of new Set([...before.topics.keys(), ...capacity.topics.keys()])) {
    tell(before.topics.get(topic) ?? 0, capacity.topics.get(topic) ?? 0, topic);
  }
}
