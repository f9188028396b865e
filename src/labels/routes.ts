/**
 * The labels in force on an event or a person, for readers. A reader sees only labels on what they may read.
 */
import * as nip19 from 'nostr-tools/nip19';
import type { Pool } from 'pg';
import { z } from 'zod';
import { type Route, route } from '../api/contract.js';
import { accessOf } from '../api/reading.js';
import { denial } from '../api/rules-errors.js';
import { milliseconds, pubkey } from '../api/schemas.js';
import type { Community } from '../communities/communities.js';
import { seenBy, sees } from '../events/rules/access.js';
import type { NostrEvent } from '../events/rules/event.js';
import { isExpired } from '../events/rules/expiration.js';
import { parseFilter } from '../events/rules/filter.js';
import { isRefusal } from '../events/rules/reply.js';
import { asKept } from '../events/rules/retention.js';
import type { EventReads } from '../events/store.js';
import { eventId } from '../reports/routes.js';
import type { MatchedEvent } from '../topics/rules.js';
import { type KeptLabel, labelsAbout } from './labels.sql.js';
import { KIND_LABEL, LABELS } from './rules.js';

const labelsResponse = z.strictObject({
  target_event: eventId.nullable(),
  target_pubkey: pubkey.nullable(),
  shown: z.boolean().describe('Whether the event can be read here; true for a person'),
  labels: z.array(
    z.strictObject({
      label: z.enum(LABELS),
      confidence: z.number(),
      policy: z.string(),
      created_at: milliseconds,
      lapses_at: z.number().int().describe('Seconds since 1970'),
      label_event: eventId.nullable().describe('The event of kind 1985 that publishes it'),
    }),
  ),
});

export interface LabelOptions {
  readonly pool: Pool;
  readonly events: Pick<EventReads, 'byIds'>;
}

export function labelRoutes(options: LabelOptions): Route[] {
  return [
    route({
      method: 'GET',
      url: '/labels',
      summary: 'The labels in force on an event or a person',
      description:
        'The prefix says whether the target is an event or a person; plain hex is looked up as both.',
      tags: ['labels'],
      who: 'reader',
      needsConsent: true,
      query: z.strictObject({
        target: z
          .string()
          .min(1)
          .max(1_000)
          .describe('The id of an event or a key: hex, note, nevent, npub or nprofile'),
      }),
      response: labelsResponse,
      errors: ['UNAVAILABLE'],
      handler: async ({ community, pubkey: reader, query: { target }, now }) => {
        const wanted = targetOf(target);
        if (wanted === undefined)
          return denial('INVALID_REQUEST', {
            problems: [{ path: 'querystring/target', message: 'neither an event id nor a public key' }],
          });
        const mayRead = await readingOf(options.pool, community, reader);
        return showLabels(options, community, wanted, mayRead, now);
      },
    }),
  ];
}

interface LabelTarget {
  readonly event: string | undefined;
  readonly pubkey: string | undefined;
}

function targetOf(text: string): LabelTarget | undefined {
  if (/^[0-9a-f]{64}$/.test(text)) return { event: text, pubkey: text };
  try {
    const { type, data } = nip19.decode(text);
    if (type === 'note') return { event: data, pubkey: undefined };
    if (type === 'nevent') return { event: data.id, pubkey: undefined };
    if (type === 'npub') return { event: undefined, pubkey: data };
    return type === 'nprofile' ? { event: undefined, pubkey: data.pubkey } : undefined;
  } catch {
    return undefined;
  }
}

type MayRead = (event: MatchedEvent) => boolean;

/** Uses the same view as a REQ of this reader. */
async function readingOf(pool: Pool, community: Community, reader: string | undefined): Promise<MayRead> {
  const access = await accessOf(pool, community, reader);
  const anything = parseFilter({}, community.settings);
  if (isRefusal(anything)) throw new Error(anything.why);
  const { view } = seenBy(anything, access, community);
  return (event) => view === undefined || sees(view, event);
}

async function showLabels(
  { pool, events }: LabelOptions,
  rules: Community,
  { event, pubkey: person }: LabelTarget,
  mayRead: MayRead,
  now: number,
): Promise<z.output<typeof labelsResponse>> {
  const { id: community } = rules;
  const ofEvent = event === undefined ? [] : await labelsAbout(pool, { community, event }, now);
  const ofPerson = person === undefined ? [] : await labelsAbout(pool, { community, pubkey: person }, now);
  const shown = event === undefined ? undefined : await shownEvent(events, rules, event, mayRead, now);
  const readable = ofEvent.filter((label) => mayRead(asEvent(label)));
  const isEvent = shown !== undefined || readable.length > 0 || person === undefined;
  return {
    target_event: isEvent ? (event ?? null) : null,
    target_pubkey: isEvent ? null : (person ?? null),
    shown: isEvent ? shown !== undefined : true,
    labels: (isEvent ? readable : ofPerson).map((label) => ({
      label: label.label,
      confidence: label.confidence,
      policy: label.policy,
      created_at: label.createdAt,
      lapses_at: label.lapsesAt,
      label_event: label.labelEvent,
    })),
  };
}

async function shownEvent(
  events: Pick<EventReads, 'byIds'>,
  rules: Community,
  id: string,
  mayRead: MayRead,
  now: number,
): Promise<NostrEvent | undefined> {
  const { id: community } = rules;
  const found = (await events.byIds([{ community, id }], 'light')).get(`${community}/${id}`);
  if (found === undefined) return undefined;
  const event = JSON.parse(found.payload) as NostrEvent;
  const kept = asKept(rules, event, found, now);
  const isHere = kept !== undefined && mayRead(kept) && !isExpired(event, Math.floor(now / 1_000));
  return isHere ? event : undefined;
}

/** A label carries the topics of its target, so who may not read those does not get it. */
function asEvent({ topics, targetPubkey, signedAt }: KeptLabel): MatchedEvent {
  const tags = topics.map((topic) => ['t', topic]);
  return { id: '', pubkey: targetPubkey, created_at: signedAt, kind: KIND_LABEL, tags, content: '', sig: '' };
}
