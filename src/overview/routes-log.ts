/**
 * The log of the instance that answers, for operators of the node: its newest lines, kept in memory, and as
 * server-sent events each new one. The log is that of the whole node, so nobody else reads it (I13).
 */
import { Readable } from 'node:stream';
import { z } from 'zod';
import { Flow, type Route, route } from '../api/contract.js';
import { type EndingReader, type FollowOptions, SignOfLife, watcher } from '../api/following.js';
import { refuseOthers } from '../api/node-operators.js';
import { plainText } from '../api/schemas.js';
import type { LogLine, LogLines } from '../node/log.js';
import { Streams } from '../outbox/streams.js';
import { LOG_LEVELS, type LogEntry, type LogFilter, parseLine, passes } from './rules-log.js';

const SSE = 'text/event-stream';
const JSON_TYPE = 'application/json';
const POLL_MS = 500;
const LINES = 200;
const LINES_MAX = 1_000;
/** Lines that are looked at before the stream checks the rights of its reader again. */
const PORTION = 500;

export interface LogRouteOptions extends FollowOptions {
  /** Without it the log is empty. */
  readonly logLines?: LogLines;
}

const entry = z.strictObject({
  position: z.number().int().describe('Rises with each line of this instance'),
  time: z.string().describe('ISO 8601'),
  level: z.enum(LOG_LEVELS),
  message: z.string(),
  fields: z.record(z.string(), z.unknown()),
});

interface Found {
  readonly line: LogLine;
  readonly entry: LogEntry;
}

function* matching(lines: readonly LogLine[], filter: LogFilter): Generator<Found> {
  for (const line of lines) {
    const parsed = parseLine(line.text);
    if (parsed !== undefined && passes(parsed, line.text, filter)) yield { line, entry: parsed };
  }
}

const show = ({ line: { position }, entry: found }: Found): z.output<typeof entry> => ({
  position,
  ...found,
});

async function* follow(
  lines: LogLines,
  { filter, from }: { readonly filter: LogFilter; readonly from: number },
  ending: EndingReader,
): AsyncGenerator<string> {
  const life = new SignOfLife();
  for (let position = from; ; ) {
    const portion = lines.after(position, PORTION);
    for (const found of matching(portion, filter)) {
      yield `id: ${found.line.position}\nevent: line\ndata: ${JSON.stringify(show(found))}\n\n`;
      life.given();
    }
    position = portion.at(-1)?.position ?? position;
    if (life.isDue()) {
      yield ':\n\n';
      life.given();
    }
    const ended = await ending(portion.length === PORTION ? 0 : POLL_MS);
    if (ended === 'gone') return;
    if (ended !== undefined) return yield `event: closed\ndata: ${JSON.stringify({ code: ended })}\n\n`;
  }
}

export function logRoutes(options: LogRouteOptions): Route[] {
  const { logLines } = options;
  const streams = new Streams(options.communities);
  return [
    route({
      method: 'GET',
      url: '/admin/log',
      summary: 'The newest lines of the log of this instance',
      description:
        'Only for operators of the node. With Accept: text/event-stream also each new line, as an event ' +
        '`line`; `closed`: you may no longer read. MINATO_LOG_LEVEL says what is logged at all.',
      tags: ['admin: log'],
      who: 'operator',
      query: z.strictObject({
        level: z.enum(LOG_LEVELS).default('debug').describe('The least level'),
        text: plainText(200).default('').describe('Only lines that contain it, in any case'),
        last: z.coerce
          .number()
          .int()
          .min(0)
          .max(LINES_MAX)
          .default(LINES)
          .describe('How many of the newest lines are looked at first'),
      }),
      resumable: true,
      produces: { [JSON_TYPE]: z.strictObject({ items: z.array(entry) }), [SSE]: entry },
      response: z.custom<Flow>(),
      errors: [],
      handler: async (call) => {
        const refused = refuseOthers(options, call, 'The log belongs to the whole node');
        if (refused !== undefined) return refused;
        const { level, text, last } = call.query;
        const filter = { level, text };
        const newest = logLines?.newest(last) ?? 0;
        if (call.type !== SSE || logLines === undefined) {
          const items = [...matching(logLines?.after(newest, LINES_MAX) ?? [], filter)].map(show);
          return new Flow(Readable.from([JSON.stringify({ items })]));
        }
        const full = streams.refuse(call);
        if (full !== undefined) return full;
        const from = call.lastEventId ?? newest;
        const stream = Readable.from(follow(logLines, { filter, from }, watcher(options, call)), {
          objectMode: false,
        });
        streams.hold(call, stream);
        return new Flow(stream);
      },
    }),
  ];
}
