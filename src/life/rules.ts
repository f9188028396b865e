/**
 * The life of one event as a timeline, from what the node knows about it, and what happens when it is sent
 * again. Pure: the answer about sending it again comes from the rules that decide about every event.
 */
import { decide, decideKnown } from '../events/rules/decide.js';
import { isExpired } from '../events/rules/expiration.js';
import type { Hidden } from '../events/rules/hidden.js';
import { okFrame, outcomeOf } from '../events/rules/reply.js';
import type { RefusedAs } from '../members/rules.js';

/** What the event store knows (events/postgres/read/event-life.ts). */
export interface StoreFacts {
  readonly known:
    | {
        readonly author: string;
        readonly firstSeenAt: number;
        readonly lastSeenAt: number | null;
        readonly seenCount: number;
        readonly hidden: Hidden | undefined;
        readonly goneAt: number | null;
        readonly cameBy?: keyof typeof WAYS | undefined;
        readonly stored: { readonly event: LivedEvent; readonly hiddenAt: number | null } | undefined;
      }
    | undefined;
  readonly tombstones: readonly {
    readonly author: string;
    readonly isAddress: boolean;
    readonly requestedAt: number;
    readonly deletionEvent: string;
  }[];
  readonly head: { readonly id: string; readonly created_at: number } | undefined;
  readonly vanish: { readonly until: number; readonly request: string | null } | undefined;
}

/** How an event came. */
export const WAYS = {
  post: 'posted here or imported',
  gossip: 'from another node, by gossip',
  sync: 'from another relay, by sync',
} as const;

type LivedEvent = Parameters<typeof decide>[0];

/** What other parts of the node know. */
export interface OtherFacts {
  readonly actions: readonly {
    readonly action: string;
    readonly at: number;
    readonly outcome: string | null;
    readonly caseId: string | null;
    readonly ruleId: string | null;
    readonly actor: string | null;
  }[];
  readonly cases: readonly {
    readonly caseId: string;
    readonly status: string;
    readonly reason: string;
    readonly ruleId: string | null;
    readonly openedAt: number;
    readonly closedAt: number | null;
  }[];
  readonly labels: readonly {
    readonly label: string;
    readonly createdAt: number;
    readonly withdrawnAt: number | null;
    readonly caseId: string | null;
    readonly ruleId: string | null;
  }[];
  /** The author is blocked, or the account is refused. */
  readonly isBlocked: boolean;
  readonly refusedAs: RefusedAs | undefined;
}

export const LIFE_STEPS = [
  'arrived',
  'repeated',
  'superseded',
  'deletion-requested',
  'deleted',
  'expired',
  'retention',
  'capacity',
  'vanished',
  'withheld',
  'removed',
  'erased',
  'purged',
  'case-opened',
  'case-closed',
  'action',
  'labelled',
  'label-withdrawn',
] as const;

export interface LifeEntry {
  /** Milliseconds; null where the node does not know it any more. */
  readonly at: number | null;
  readonly what: (typeof LIFE_STEPS)[number];
  /** The event that did it: a deletion request, a newer version, a request to vanish. */
  readonly event?: string | undefined;
  readonly pubkey?: string | undefined;
  readonly caseId?: string | undefined;
  readonly ruleId?: string | undefined;
  readonly detail?: string | undefined;
}

/** `unknown`: it has never been accepted here, or that is forgotten. */
export const LIFE_STATUSES = ['served', 'hidden', 'purged', 'unknown'] as const;

export interface Life {
  readonly status: (typeof LIFE_STATUSES)[number];
  /** Why it is not served. */
  readonly hidden: Hidden | undefined;
  readonly timeline: readonly LifeEntry[];
  readonly again: Again;
}

/** What the relay answers when the event is sent again. */
export interface Again {
  /** Whether it would be stored again; undefined where that depends on its author, whom nobody knows here. */
  readonly comesBack: boolean | undefined;
  /** The text of the OK message, as far as the event store decides. */
  readonly reply: string | undefined;
  /** Further grounds that refuse it on arrival. */
  readonly also: readonly string[];
}

const order = ({ at }: LifeEntry) => at ?? Number.MAX_SAFE_INTEGER;
const given = <T>(value: T | null): T | undefined => value ?? undefined;

export function lifeOf(id: string, store: StoreFacts, others: OtherFacts, now: number): Life {
  const hidden = hiddenAs(store, now);
  const { known } = store;
  const kept = known?.stored === undefined ? 'purged' : hidden === undefined ? 'served' : 'hidden';
  const entries = [...arrivalOf(store), ...hidingOf(id, store, hidden), ...moderationOf(others)];
  return {
    status: known === undefined ? 'unknown' : kept,
    hidden,
    // A stable sort: entries without a time come last, in the order in which they are listed.
    timeline: entries.sort((a, b) => order(a) - order(b)),
    again: againOf(id, store, others, now),
  };
}

/** Time hides at once; the row is marked soon after. */
function hiddenAs({ known, vanish }: StoreFacts, now: number): Hidden | undefined {
  if (known === undefined || known.hidden !== undefined) return known?.hidden;
  const event = known.stored?.event;
  if (event === undefined) return undefined;
  if (vanish !== undefined && event.created_at <= vanish.until) return 'vanished';
  return isExpired(event, Math.floor(now / 1_000)) ? 'expired' : undefined;
}

function arrivalOf({ known }: StoreFacts): LifeEntry[] {
  if (known === undefined) return [];
  const { author: pubkey, firstSeenAt, lastSeenAt, seenCount, goneAt, cameBy } = known;
  return [
    { at: firstSeenAt, what: 'arrived', pubkey, ...(cameBy && { detail: WAYS[cameBy] }) },
    ...(seenCount > 1
      ? [{ at: lastSeenAt, what: 'repeated', detail: `${seenCount} times in all` } as const]
      : []),
    ...(goneAt === null ? [] : [{ at: goneAt, what: 'purged' } as const]),
  ];
}

function hidingOf(id: string, store: StoreFacts, hidden: Hidden | undefined): LifeEntry[] {
  const { known, tombstones, head, vanish } = store;
  const requests = tombstones.map(
    ({ author, isAddress, requestedAt, deletionEvent }): LifeEntry => ({
      at: requestedAt * 1_000,
      what: 'deletion-requested',
      event: deletionEvent,
      pubkey: author,
      detail: isAddress ? 'by its address' : 'by its id',
    }),
  );
  if (hidden === undefined) return requests;
  const causes: Partial<Record<Hidden, string | undefined>> = {
    superseded: head?.id === id ? undefined : head?.id,
    deleted: tombstones[0]?.deletionEvent,
    vanished: given(vanish?.request ?? null),
  };
  const at = known?.stored?.hiddenAt ?? null;
  return [...requests, { at, what: hidden, event: causes[hidden] }];
}

function moderationOf({ actions, cases, labels }: OtherFacts): LifeEntry[] {
  return [
    ...cases.flatMap(({ caseId, status, reason, ruleId, openedAt, closedAt }): LifeEntry[] => {
      const of = { caseId, ruleId: given(ruleId) };
      return [
        { at: openedAt, what: 'case-opened', ...of, detail: reason },
        ...(closedAt === null ? [] : [{ at: closedAt, what: 'case-closed', ...of, detail: status } as const]),
      ];
    }),
    ...actions.map(
      ({ action, at, outcome, caseId, ruleId, actor }): LifeEntry => ({
        at,
        what: 'action',
        pubkey: given(actor),
        caseId: given(caseId),
        ruleId: given(ruleId),
        detail: `${action}: ${outcome ?? 'pending'}`,
      }),
    ),
    ...labels.flatMap(({ label, createdAt, withdrawnAt, caseId, ruleId }): LifeEntry[] => {
      const of = { caseId: given(caseId), ruleId: given(ruleId), detail: label };
      return [
        { at: createdAt, what: 'labelled', ...of },
        ...(withdrawnAt === null ? [] : [{ at: withdrawnAt, what: 'label-withdrawn', ...of } as const]),
      ];
    }),
  ];
}

function againOf(id: string, store: StoreFacts, { isBlocked, refusedAs }: OtherFacts, now: number): Again {
  const also = [
    ...(isBlocked ? ['its author is blocked'] : []),
    ...(refusedAs === undefined ? [] : [`the account of its author is ${refusedAs}`]),
  ];
  const { known, tombstones } = store;
  if (known === undefined) {
    const owners = [...new Set(tombstones.map(({ author }) => author))];
    const grounds = owners.map((author) => `if ${author} wrote it: deleted by its author`);
    const comesBack = grounds.length === 0 ? true : undefined;
    return { comesBack, reply: undefined, also: [...also, ...grounds] };
  }
  const decision =
    known.stored === undefined
      ? decideKnown(known.hidden ?? 'served')
      : decide(known.stored.event, factsOf(store), Math.floor(now / 1_000));
  const [, , , reply] = JSON.parse(okFrame(id, outcomeOf(decision))) as [string, string, boolean, string];
  const comesBack = (decision === 'stored' || decision === 'broadcast') && also.length === 0;
  return { comesBack, reply, also };
}

function factsOf({ known, tombstones, head, vanish }: StoreFacts): Parameters<typeof decide>[1] {
  const ofAddress = tombstones.filter(({ isAddress }) => isAddress).map(({ requestedAt }) => requestedAt);
  return {
    known: known === undefined ? undefined : (known.hidden ?? 'served'),
    head,
    idDeleted: tombstones.some(({ isAddress }) => !isAddress),
    addressDeletedAt: ofAddress.length === 0 ? undefined : Math.max(...ofAddress),
    vanishedUntil: vanish?.until,
    erasedUntil: undefined,
  };
}
