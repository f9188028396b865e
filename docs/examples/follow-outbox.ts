// A service outside of the node: a tiny index of what is effective, in one JSON file, that follows every change and
// every deletion. It may be killed at any moment.
//   MINATO_SECRET_KEY=<hex of an operator's key> npx tsx docs/examples/follow-outbox.ts index.json [http://127.0.0.1:7447]
// The contract is in docs/outbox.md.
import { existsSync, readFileSync, renameSync, writeFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { finalizeEvent } from 'nostr-tools/pure';

const [file = 'index.json', node = 'http://127.0.0.1:7447'] = process.argv.slice(2);
const secret = Buffer.from(process.env.MINATO_SECRET_KEY ?? '', 'hex');
/** A stream that follows says something about every ten seconds. */
const SILENCE_MS = 30_000;
const ROWS_PER_SAVE = 1_000;

interface Indexed {
  author: string;
  kind: number;
  text: string;
}
interface Index {
  /** Everything up to this number of the outbox is in here. */
  seq: number;
  events: Record<string, Indexed>;
}
type Line =
  | {
      op: 'upsert';
      seq: number;
      event_id: string;
      author: string;
      kind: number;
      event: { content: string } | null;
    }
  | { op: 'delete'; seq: number; event_id: string }
  | { op: 'position'; seq: number; pinned?: number }
  | { op: 'behind' }
  | { op: 'closed'; code: string };

/** What has to be done about a refusal depends on its code. */
class Refused extends Error {
  constructor(
    readonly code: string,
    readonly retryAfterSeconds: number,
  ) {
    super(code);
  }
}

/** The lines of an answer. Each request is signed by itself (NIP-98). */
async function* read(path: string): AsyncGenerator<Line> {
  const url = node + path;
  const tags = [
    ['u', url],
    ['method', 'GET'],
  ];
  const created_at = Math.floor(Date.now() / 1000);
  const signed = finalizeEvent({ kind: 27235, created_at, tags, content: '' }, secret);
  const authorization = `Nostr ${Buffer.from(JSON.stringify(signed)).toString('base64')}`;
  const silence = new AbortController();
  const response = await fetch(url, { headers: { authorization }, signal: silence.signal });
  if (!response.ok) {
    const { code } = (await response.json()) as { code: string };
    throw new Refused(code, Number(response.headers.get('retry-after') ?? 0));
  }
  let timer = setTimeout(() => silence.abort(), SILENCE_MS);
  let rest = '';
  try {
    const decoder = new TextDecoder();
    for await (const bytes of response.body!) {
      clearTimeout(timer);
      timer = setTimeout(() => silence.abort(), SILENCE_MS);
      const lines = (rest + decoder.decode(bytes, { stream: true })).split('\n');
      // What was cut off in the middle of a line comes again.
      rest = lines.pop()!;
      for (const line of lines) yield JSON.parse(line) as Line;
    }
  } finally {
    clearTimeout(timer);
    silence.abort();
  }
}

/** The effect of a row. The same row twice changes nothing; a delete of what is not here is nothing. */
function apply(index: Index, line: Line): void {
  if (line.op === 'upsert' && line.event !== null) {
    const { author, kind, event } = line;
    index.events[line.event_id] = { author, kind, text: event.content.slice(0, 200) };
  } else if (line.op === 'upsert' || line.op === 'delete') {
    // An upsert without its event: it is gone again, and a later row says why.
    delete index.events[line.event_id];
  }
}

/** The effect and its number in one step: a file is replaced as a whole or not at all. */
function save(index: Index): void {
  writeFileSync(`${file}.new`, JSON.stringify(index), { flush: true });
  renameSync(`${file}.new`, file);
}

/** Everything that is effective, part by part up to the pin of the first; from there the outbox goes on. */
async function build(): Promise<Index> {
  const index: Index = { seq: 0, events: {} };
  let pinned: number | undefined;
  let after = 0;
  while (pinned === undefined || after < pinned) {
    const upTo: string = pinned === undefined ? '' : `&up_to=${pinned}`;
    for await (const line of read(`/v1/admin/outbox/view?after=${after}&limit=10000${upTo}`)) {
      if (line.op === 'position') ({ seq: after, pinned } = line);
      else if (line.op === 'closed') throw new Refused(line.code, 0);
      else apply(index, line);
    }
    if (pinned === undefined) throw new Error('the view was cut off');
  }
  index.seq = pinned;
  save(index);
  console.log(`built: ${Object.keys(index.events).length} events, up to ${index.seq}`);
  return index;
}

/** Until the stream ends; gives false when the outbox does not reach back to here any more. */
async function follow(index: Index, onLine: () => void): Promise<boolean> {
  let unsaved = 0;
  for await (const line of read(`/v1/admin/outbox?after=${index.seq}&follow=true`)) {
    onLine();
    if (line.op === 'behind') return false;
    if (line.op === 'closed') throw new Refused(line.code, 0);
    apply(index, line);
    index.seq = line.seq;
    unsaved += 1;
    if (line.op === 'position' || unsaved === ROWS_PER_SAVE) {
      save(index);
      unsaved = 0;
    }
  }
  return true;
}

let index: Index | undefined = existsSync(file)
  ? (JSON.parse(readFileSync(file, 'utf8')) as Index)
  : undefined;
for (let failures = 0; ; ) {
  let pauseMs = Math.min(30_000, 500 * 2 ** Math.min(failures, 10));
  try {
    index ??= await build();
    console.log(`following after ${index.seq}`);
    const reached = await follow(index, () => {
      failures = 0;
    });
    if (!reached) index = undefined;
  } catch (error) {
    const code = error instanceof Refused ? error.code : undefined;
    if (code === 'OUTBOX_BEHIND') index = undefined;
    else if (code !== undefined && !['RATE_LIMITED', 'UNAVAILABLE', 'INTERNAL'].includes(code)) throw error;
    if (error instanceof Refused) pauseMs = Math.max(pauseMs, error.retryAfterSeconds * 1000);
    console.log(`again in ${pauseMs} ms: ${error instanceof Error ? error.message : String(error)}`);
  }
  failures += 1;
  await delay(pauseMs);
}
