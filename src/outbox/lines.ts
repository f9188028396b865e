/**
 * The lines that external services read from the outbox: one JSON object each, as NDJSON or server-sent
 * events.
 */
import { z } from 'zod';
import type { ErrorCode } from '../api/rules-errors.js';
import { milliseconds, pubkey } from '../api/schemas.js';
import { OUTBOX_REASONS } from '../events/rules/hidden.js';
import type { Change } from './changes.sql.js';

export const NDJSON = 'application/x-ndjson';
export const SSE = 'text/event-stream';

const seq = z.number().int().describe('The offset; offsets only grow, with gaps');
const changed = {
  seq,
  event_id: z.string(),
  author: pubkey,
  kind: z.number().int(),
  topics: z.array(z.string()).describe('The topics that it names, and those that it is bound to'),
  effective_key: z.string().nullable().describe('For a replaceable or addressable event: kind:pubkey:d'),
  created_at: z.number().int().describe('Seconds since 1970, as the event has it'),
  ingested_at: milliseconds,
};

export const outboxLine = z.discriminatedUnion('op', [
  z.strictObject({
    op: z.literal('upsert'),
    reason: z.null(),
    ...changed,
    event: z
      .record(z.string(), z.unknown())
      .nullable()
      .optional()
      .describe('Null: it is no longer served; with events=false the field is left out'),
  }),
  z.strictObject({
    op: z.literal('delete'),
    reason: z.enum(Object.values(OUTBOX_REASONS)),
    ...changed,
    event: z.null().optional(),
  }),
  z.strictObject({
    op: z
      .literal('scrubbed')
      .describe('A row about an erased member: if you have not read its delete, rebuild'),
    seq,
  }),
  z.strictObject({
    op: z.literal('position'),
    seq: z.number().int().describe('Everything up to this offset has been sent'),
    head: z.number().int().describe('The head of the outbox'),
    pinned: z
      .number()
      .int()
      .optional()
      .describe('For a view: use it as up_to of the next part, and then as after of the outbox'),
    more: z.boolean().optional().describe('For a view: whether another part follows'),
  }),
  z.strictObject({
    op: z.literal('behind'),
    floor: z.number().int(),
    head: z.number().int(),
  }),
  z.strictObject({ op: z.literal('closed'), code: z.string().describe('Why the stream ends') }),
]);

export type Lines = (line: Line) => string;

interface Line {
  readonly op: z.output<typeof outboxLine>['op'];
  readonly seq?: number;
  readonly json: string;
}

/** With `id`, so that a client of server-sent events resumes at the right offset. */
const asEvent: Lines = ({ op, seq, json }) =>
  `${seq === undefined ? '' : `id: ${seq}\n`}event: ${op}\ndata: ${json}\n\n`;

export const LINES: Record<string, Lines> = { [NDJSON]: ({ json }) => `${json}\n`, [SSE]: asEvent };

/** `event` is the JSON as it was posted, null, or left out. */
export function changeLine(change: Change, event: string | null | undefined): Line {
  const { seq, op, reason, id, author, kind, topics, effectiveKey, createdAt, ingestedAt } = change;
  if (id === '') return { op: 'scrubbed', seq, json: JSON.stringify({ seq, op: 'scrubbed' }) };
  const row = JSON.stringify({
    seq,
    op,
    reason: reason ?? null,
    event_id: id,
    author,
    kind,
    topics,
    effective_key: effectiveKey ?? null,
    created_at: createdAt,
    ingested_at: ingestedAt,
  });
  return { op, seq, json: event === undefined ? row : `${row.slice(0, -1)},"event":${event}}` };
}

export interface Position {
  readonly seq: number;
  readonly head: number;
  readonly pinned?: number;
  readonly more?: boolean;
}

export function positionLine(position: Position): Line {
  return { op: 'position', seq: position.seq, json: JSON.stringify({ op: 'position', ...position }) };
}

/** Without an offset: this line does not move the position of the reader. */
export function behindLine(reach: { readonly floor: number; readonly head: number }): Line {
  return { op: 'behind', json: JSON.stringify({ op: 'behind', ...reach }) };
}

export function closedLine(code: ErrorCode): Line {
  return { op: 'closed', json: JSON.stringify({ op: 'closed', code }) };
}
