/**
 * The outbox for external services: the changes of their community (I13), in commit order, each at least once
 * (I8), and the effective events to begin from (I9). The next rows are read after the reader has taken those
 * before (I14), and its rights are checked again all the time. Every instance knows the open streams, so that
 * an erasure lets them send its deletes before it scrubs the rows. A follower that has missed rows gets no
 * more until it has rebuilt (I17).
 */
import { randomUUID } from 'node:crypto';
import { Readable } from 'node:stream';
import type { Pool } from 'pg';
import { z } from 'zod';
import { type Call, Flow, type Route, route } from '../api/contract.js';
import { type Ending, type EndingReader, type FollowOptions, SignOfLife, watcher } from '../api/following.js';
import { type Denial, denial, isDenial } from '../api/rules-errors.js';
import { flag, followerName } from '../api/schemas.js';
import { type ChangedEvents, type ChangePage, readChanges } from './changes.sql.js';
import { type FollowerRef, forgetStream, noteStream, pinFollower, seeFollower } from './followers.sql.js';
import { eventIn } from './hidden-by-time.js';
import {
  behindLine,
  changeLine,
  closedLine,
  LINES,
  type Lines,
  NDJSON,
  outboxLine,
  positionLine,
  SSE,
} from './lines.js';
import { OutboxBehind, readReach } from './outbox.sql.js';
import { Streams } from './streams.js';

const PAGE_ROWS = 500;
/** Rows whose events are in memory at once. */
const PORTION_ROWS = 100;
/** Offsets that one statement reads, of any community. */
const OFFSETS_PER_READ = 50_000;
const POLL_MS = 500;
const ROWS_MAX = 10_000;
const ROWS = 1_000;

export interface OutboxOptions extends FollowOptions {
  readonly changed: ChangedEvents;
  /** After this time without a row a stream sends its position; ten seconds by default. */
  readonly signOfLifeMs?: number;
}

const seq = z.coerce.number().int().min(0).max(Number.MAX_SAFE_INTEGER);
const limit = z.coerce.number().int().min(1).max(ROWS_MAX);

export function outboxRoutes(options: OutboxOptions): Route[] {
  const streams = new Streams(options.communities);
  const shared = {
    method: 'GET',
    tags: ['admin: outbox'],
    who: 'operator',
    response: z.custom<Flow>(),
    errors: ['OUTBOX_BEHIND', 'NOT_FOUND'],
    allowsClosing: true,
  } as const;
  /** The stream is counted until it ends. */
  const send = (
    call: Call<'operator'>,
    lines: (refusal: EndingReader) => AsyncGenerator<string>,
  ): Flow | Denial => {
    const full = streams.refuse(call);
    if (full !== undefined) return full;
    const stream = Readable.from(lines(watcher(options, call)), { objectMode: false });
    streams.hold(call, stream);
    return new Flow(stream);
  };
  return [
    route({
      ...shared,
      url: '/admin/outbox',
      summary: 'Read the changes of this community, one line each',
      description: FOLLOWING,
      produces: { [NDJSON]: outboxLine, [SSE]: outboxLine },
      resumable: true,
      query: z.strictObject({
        after: seq
          .optional()
          .describe('Your last offset; by default 0, or what the follower has acknowledged'),
        limit: limit.optional().describe(`Most rows of an answer that ends; ${ROWS} by default`),
        follow: flag
          .optional()
          .describe('Keep the stream open for new changes; the default for server-sent events'),
        events: flag.default('true').describe('false: leaves the events out'),
        follower: followerName
          .optional()
          .describe('The follower that reads: after missed rows it must rebuild'),
      }),
      handler: async (call) => {
        const { community, query, type } = call;
        const follow = query.follow === undefined ? type === SSE : query.follow === 'true';
        if (follow && query.limit !== undefined) return badLimit;
        const follower = followerIn(community.id, query.follower);
        const seen = follower && (await seeFollower(options.pool, follower, call.now));
        if (follower !== undefined && seen === undefined)
          return denial('NOT_FOUND', { follower: follower.name });
        const asked = {
          community: community.id,
          after: call.lastEventId ?? query.after ?? seen?.acknowledgedSeq ?? 0,
          limit: follow ? Number.POSITIVE_INFINITY : (query.limit ?? ROWS),
          follow,
          follower,
          withEvents: query.events === 'true',
        };
        if (seen?.mustRebuild) return denial('OUTBOX_BEHIND', { ...(await readReach(options.pool)) });
        const first = await nextPage(options.pool, asked, asked.limit);
        return isDenial(first)
          ? first
          : send(call, (refusal) => changes(options, refusal, asked, first, LINES[type]!));
      },
    }),
    route({
      ...shared,
      url: '/admin/outbox/view',
      summary: 'Read the effective events of this community, to begin from',
      description: VIEWING,
      produces: { [NDJSON]: outboxLine },
      query: z.strictObject({
        after: seq.default(0).describe('seq of the last position; 0 for the first part'),
        up_to: seq.optional().describe('pinned of the first part; by default the current head'),
        limit: limit.default(ROWS).describe('Most rows of this part'),
        follower: followerName
          .optional()
          .describe('The follower that rebuilds: from then on erasures wait for it again'),
      }),
      handler: async (call) => {
        const { community, query } = call;
        const reach = await readReach(options.pool);
        const pinned = query.up_to ?? reach.head;
        // The outbox could not be followed from there.
        if (pinned > reach.head || pinned < reach.floor - 1) return denial('OUTBOX_BEHIND', { ...reach });
        const follower = followerIn(community.id, query.follower);
        if (follower !== undefined) {
          const state = await pinFollower(options.pool, follower, pinned, call.now);
          if (state === undefined) return denial('NOT_FOUND', { follower: follower.name });
          if (state === 'behind') return denial('OUTBOX_BEHIND', { ...reach });
        }
        const asked = { community: community.id, after: query.after, pinned, limit: query.limit };
        return send(call, (refusal) => view(options, refusal, asked, LINES[NDJSON]!));
      },
    }),
  ];
}

const FOLLOWING = `\`upsert\` and \`delete\` in commit order, and \`position\`, the offset up to which
everything has been sent. Save the offset with its effect and continue with \`after\`: each row is sent at
least once. An answer that does not follow ends with a position; one that follows sends it when it has caught
up, and about every ten seconds. The contract for services is in docs/outbox.md. \`scrubbed\` replaces a row
that was erased: if you have not read that row before, rebuild from the view. Erasures wait for you if you
register as a follower.`;
const VIEWING = `Upserts in the order of their offsets, in parts. The last line is a position with \`pinned\`
and \`more\`. While there is more, repeat with its \`seq\` as \`after\` and \`pinned\` as \`up_to\`;
then follow the outbox after \`pinned\`.`;

const badLimit = denial('INVALID_REQUEST', {
  problems: [{ path: 'querystring/limit', message: 'must not be set together with follow' }],
});

const followerIn = (community: number, name: string | undefined): FollowerRef | undefined =>
  name === undefined ? undefined : { community, name };

// ── Reading ────────────────────────────────────────────────────────────────────────────────────────────────

interface Asked {
  readonly community: number;
  readonly after: number;
  readonly limit: number;
}

/** If the offset is below the floor or above the head of the outbox, the reader must rebuild. */
async function nextPage(
  pool: Pool,
  { community, after }: Pick<Asked, 'community' | 'after'>,
  rowsMax: number,
): Promise<ChangePage | Denial> {
  const behind = async () => denial('OUTBOX_BEHIND', { ...(await readReach(pool)) });
  try {
    const limit = Math.min(PAGE_ROWS, rowsMax);
    const page = await readChanges(pool, {
      community,
      after,
      limit,
      within: OFFSETS_PER_READ,
      bare: true,
      scrubbed: true,
    });
    return after > page.lastSeq ? await behind() : page;
  } catch (error) {
    if (!(error instanceof OutboxBehind)) throw error;
    return behind();
  }
}

interface Following extends Asked {
  readonly follow: boolean;
  readonly withEvents: boolean;
  readonly follower: FollowerRef | undefined;
}

/** While the stream is open, every instance knows its offset. */
async function* changes(
  options: OutboxOptions,
  refusal: EndingReader,
  asked: Following,
  first: ChangePage,
  lines: Lines,
): AsyncGenerator<string> {
  const { pool, now } = options;
  const stream = { streamId: randomUUID(), community: asked.community };
  const note = asked.follow ? (seq: number) => noteStream(pool, stream, seq, now()) : async () => undefined;
  try {
    await note(asked.after);
    // The first page was read before the stream was recorded. Rows of it may have been scrubbed since; they
    // are sent as they were read.
    yield* changesOf(options, refusal, asked, first, lines, note);
  } finally {
    // If the database does not answer, the stream ends all the same.
    if (asked.follow) await forgetStream(pool, stream, now()).catch(() => undefined);
  }
}

async function* changesOf(
  options: OutboxOptions,
  refusal: EndingReader,
  { follow, withEvents, follower, ...asked }: Following,
  first: ChangePage,
  lines: Lines,
  note: (seq: number) => Promise<unknown>,
): AsyncGenerator<string> {
  const { pool, now } = options;
  const life = new SignOfLife(options.signOfLifeMs);
  const noted = new SignOfLife();
  let notedSeq = asked.after;
  let left = asked.limit;
  let news = true;
  for (let page = first; ; ) {
    for (const portion of portionsOf(page.changes)) {
      const refused = await refusal();
      if (refused !== undefined) return yield* lastLine(refused, lines);
      yield await show(options, portion, withEvents, lines);
      life.given();
    }
    left -= page.changes.length;
    news ||= page.changes.length > 0;
    const { upTo: seq, lastSeq: head } = page;
    const isEnd = seq >= head;
    if (!follow && (isEnd || left === 0)) return yield lines(positionLine({ seq, head }));
    if (seq > notedSeq || noted.isDue()) {
      await note(seq);
      noted.given();
      notedSeq = seq;
    }
    if ((isEnd && news) || life.isDue()) {
      yield lines(positionLine({ seq, head }));
      life.given();
      news = false;
    }
    const refused = await refusal(isEnd ? POLL_MS : 0);
    if (refused !== undefined) return yield* lastLine(refused, lines);
    const next = await nextPage(pool, { ...asked, after: seq }, left);
    // After the rows were read: a follower that misses rows is marked before they are scrubbed.
    const seen = follower && (await seeFollower(pool, follower, now()));
    if (follower !== undefined && seen === undefined) {
      const isOpen = options.communities.get(asked.community) !== undefined;
      return yield* lastLine(isOpen ? 'NOT_FOUND' : 'COMMUNITY_NOT_FOUND', lines);
    }
    if (seen?.mustRebuild) return yield lines(behindLine(await readReach(pool)));
    if (isDenial(next)) return yield lines(behindLine(next.details as { floor: number; head: number }));
    page = next;
  }
}

function portionsOf<T>(rows: readonly T[]): T[][] {
  const portions: T[][] = [];
  for (let at = 0; at < rows.length; at += PORTION_ROWS) portions.push(rows.slice(at, at + PORTION_ROWS));
  return portions;
}

/** Events are read when they are sent, so an event that was hidden meanwhile is left out (I6). */
async function show(
  { pool, changed, communities, now }: OutboxOptions,
  portion: ChangePage['changes'],
  withEvents: boolean,
  lines: Lines,
): Promise<string> {
  if (!withEvents) return portion.map((change) => lines(changeLine(change, undefined))).join('');
  const at = now();
  return (await changed.withPayloads(pool, portion))
    .map((change) =>
      lines(changeLine(change, eventIn(change, communities.get(change.community), at) ?? 'null')),
    )
    .join('');
}

async function* view(
  { pool, changed, communities, now, signOfLifeMs }: OutboxOptions,
  refusal: EndingReader,
  { community, pinned, after, limit }: Asked & { readonly pinned: number },
  lines: Lines,
): AsyncGenerator<string> {
  const life = new SignOfLife(signOfLifeMs);
  const { head } = await readReach(pool);
  let left = limit;
  for (let seq = after; ; ) {
    const rows = Math.min(PORTION_ROWS, left);
    const of = { after: seq, upTo: pinned, limit: rows, community, within: OFFSETS_PER_READ };
    const { changes: found, upTo, isDone } = await changed.view(pool, of);
    const at = now();
    const shown = found.flatMap((change) => {
      const event = eventIn(change, communities.get(community), at);
      return event === undefined ? [] : [lines(changeLine(change, event))];
    });
    left -= found.length;
    seq = upTo;
    const more = !isDone;
    const position = () => lines(positionLine({ seq, head, pinned, more }));
    if (!more || left <= 0) return yield shown.join('') + position();
    if (shown.length > 0 || life.isDue()) {
      yield shown.join('') + (life.isDue() ? position() : '');
      life.given();
    }
    const refused = await refusal();
    if (refused !== undefined) return yield* lastLine(refused, lines);
  }
}

function* lastLine(ending: Ending, lines: Lines): Generator<string> {
  if (ending !== 'gone') yield lines(closedLine(ending));
}
