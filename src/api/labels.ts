/** Labels that the community has put on an event or a person, for readers: those in force, and only about what the reader may read. */
import * as nip19 from 'nostr-tools/nip19';
import type { Pool } from 'pg';
import { z } from 'zod';
import type { Community } from '../communities.js';
import { seenBy, sees } from '../core/access.js';
import { denial } from '../core/errors.js';
import type { NostrEvent } from '../core/event.js';
import { isExpired } from '../core/expiration.js';
import { parseFilter } from '../core/filter.js';
import { KIND_LABEL, LABELS } from '../core/labels.js';
import { isRefusal } from '../core/reply.js';
import { asKept } from '../core/retention.js';
import type { MatchedEvent } from '../core/topic.js';
import { type KeptLabel, labelsAbout } from '../store/labels.js';
import { readEventsById } from '../store/query.js';
import { type Route, route } from './contract.js';
import { accessOf } from './reading.js';
import { eventId } from './reports.js';
import { milliseconds, pubkey } from './schemas.js';

const told = z.strictObject({
  target_event: eventId.nullable(),
  target_pubkey: pubkey.nullable(),
  shown: z.boolean().describe('The event can be read here; a person always can'),
  labels: z.array(
    z.strictObject({
      label: z.enum(LABELS),
      confidence: z.number(),
      policy: z.string(),
      created_at: milliseconds,
      lapses_at: z.number().int().describe('Seconds since 1970'),
      label_event: eventId.nullable().describe('The event of kind 1985 that tells it'),
    }),
  ),
});

export function labelRoutes({ pool }: { readonly pool: Pool }): Route[] {
  return [
    route({
      method: 'GET',
      url: '/labels',
      summary: 'Labels on an event or a person that are in force',
      description:
        'Whether something is called an event or a person is told by its prefix; plain hex is looked up as both.',
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
      response: told,
      errors: ['UNAVAILABLE'],
      handler: async ({ community, pubkey: reader, query: { target }, now }) => {
        const asked = targetOf(target);
        if (asked === undefined)
          return denial('INVALID_REQUEST', {
            problems: [{ path: 'querystring/target', message: 'neither an id nor a key' }],
          });
        const mayRead = await readingOf(pool, community, reader);
        return tell(pool, community, asked, mayRead, now);
      },
    }),
  ];
}

interface Asked {
  readonly event: string | undefined;
  readonly pubkey: string | undefined;
}

function targetOf(text: string): Asked | undefined {
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

/** By the same view as a REQ of this reader. */
async function readingOf(pool: Pool, community: Community, reader: string | undefined): Promise<MayRead> {
  const access = await accessOf(pool, community, reader);
  const anything = parseFilter({}, community.settings);
  if (isRefusal(anything)) throw new Error(anything.why);
  const { view } = seenBy(anything, access, community);
  return (event) => view === undefined || sees(view, event);
}

async function tell(
  pool: Pool,
  rules: Community,
  { event, pubkey: person }: Asked,
  mayRead: MayRead,
  now: number,
): Promise<z.output<typeof told>> {
  const { id: community } = rules;
  const ofEvent = event === undefined ? [] : await labelsAbout(pool, { community, event }, now);
  const ofPerson = person === undefined ? [] : await labelsAbout(pool, { community, pubkey: person }, now);
  const shown = event === undefined ? undefined : await shownEvent(pool, rules, event, mayRead, now);
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
  pool: Pool,
  rules: Community,
  id: string,
  mayRead: MayRead,
  now: number,
): Promise<NostrEvent | undefined> {
  const { id: community } = rules;
  const found = (await readEventsById(pool, [{ community, id }])).get(`${community}/${id}`);
  if (found === undefined) return undefined;
  const event = JSON.parse(found.payload) as NostrEvent;
  const kept = asKept(rules, event, found, now);
  const isHere = kept !== undefined && mayRead(kept) && !isExpired(event, Math.floor(now / 1_000));
  return isHere ? event : undefined;
}

/** It carries the topics of its target, so whoever may not read those does not get it. */
function asEvent({ topics, targetPubkey, signedAt }: KeptLabel): MatchedEvent {
  const tags = topics.map((topic) => ['t', topic]);
  return { id: '', pubkey: targetPubkey, created_at: signedAt, kind: KIND_LABEL, tags, content: '', sig: '' };
}
