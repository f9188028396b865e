/** Lines of the outbox as services outside get them: one JSON object each, as NDJSON or as server-sent events. */
import { z } from 'zod';
import type { ErrorCode } from '../core/errors.js';
import { OUTBOX_REASONS } from '../core/hidden.js';
import type { Change } from '../store/changes.js';
import { milliseconds, pubkey } from './schemas.js';

export const NDJSON = 'application/x-ndjson';
export const SSE = 'text/event-stream';

const seq = z.number().int().describe('Its number; numbers only grow, and some are missing');
const changed = {
  seq,
  event_id: z.string(),
  author: pubkey,
  kind: z.number().int(),
  topics: z.array(z.string()).describe('Those that it names, and those that it is bound to'),
  effective_key: z.string().nullable().describe('Of a replaceable or addressable event: kind:pubkey:d'),
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
      .describe('Null: it is gone again; with events=false it is left out'),
  }),
  z.strictObject({
    op: z.literal('delete'),
    reason: z.enum(Object.values(OUTBOX_REASONS)),
    ...changed,
    event: z.null().optional(),
  }),
  z.strictObject({
    op: z.literal('scrubbed').describe('Something of one who was erased: have you missed its delete?'),
    seq,
  }),
  z.strictObject({
    op: z.literal('position'),
    seq: z.number().int().describe('Everything up to this number has been told'),
    head: z.number().int().describe('The last number given out'),
    pinned: z.number().int().optional().describe('Of a view: up_to of its next part, after of the outbox'),
    more: z.boolean().optional().describe('Of a view: is another part left?'),
  }),
  z.strictObject({
    op: z.literal('behind'),
    floor: z.number().int(),
    head: z.number().int(),
  }),
  z.strictObject({ op: z.literal('closed'), code: z.string().describe('Why it ends here') }),
]);

export type Lines = (line: Line) => string;

interface Line {
  readonly op: z.output<typeof outboxLine>['op'];
  readonly seq?: number;
  readonly json: string;
}

/** With `id`, so that a client of server-sent events knows by itself where to go on. */
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

/** Without a number: neither says how far its reader has come. */
export function behindLine(reach: { readonly floor: number; readonly head: number }): Line {
  return { op: 'behind', json: JSON.stringify({ op: 'behind', ...reach }) };
}

export function closedLine(code: ErrorCode): Line {
  return { op: 'closed', json: JSON.stringify({ op: 'closed', code }) };
}
