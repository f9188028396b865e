// A service outside of the node: a tiny index of what is effective, in one JSON file, that follows every
// change and every deletion, and acknowledges them, so that an erasure waits for it. It may be killed at any
// moment.
//   MINATO_SECRET_KEY=<hex of an operator's key> npx tsx docs/examples/follow-outbox.ts index.json [http://127.0.0.1:7447] [name]
// The contract is in docs/outbox.md.
import { createHash } from 'node:crypto';
import { existsSync, readFileSync, renameSync, rmSync, writeFileSync } from 'node:fs';
import { setTimeout as delay } from 'node:timers/promises';
import { finalizeEvent } from 'nostr-tools/pure';

const [file = 'index.json', node = 'http://127.0.0.1:7447', name = 'example-index'] = process.argv.slice(2);
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
  /** Everything up to this offset of the outbox is in here. */
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
  | { op: 'scrubbed'; seq: number }
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
/** Rows were missed, or this file is not what was acknowledged: what it holds may have been deleted. */
const MUST_REBUILD = ['OUTBOX_BEHIND', 'OFFSET_OUT_OF_RANGE'];
const PASSING = ['RATE_LIMITED', 'UNAVAILABLE', 'INTERNAL'];

/** Each request is signed by itself (NIP-98). */
async function send(method: string, path: string, signal: AbortSignal, body?: string): Promise<Response> {
  const url = node + path;
  const tags = [
    ['u', url],
    ['method', method],
  ];
  if (body !== undefined) tags.push(['payload', createHash('sha256').update(body).digest('hex')]);
  const created_at = Math.floor(Date.now() / 1000);
  const signed = finalizeEvent({ kind: 27235, created_at, tags, content: '' }, secret);
  const headers = {
    authorization: `Nostr ${Buffer.from(JSON.stringify(signed)).toString('base64')}`,
    ...(body === undefined ? {} : { 'content-type': 'application/json' }),
  };
  const response = await fetch(url, { method, headers, signal, ...(body === undefined ? {} : { body }) });
  if (response.ok) return response;
  const { code } = (await response.json()) as { code: string };
  throw new Refused(code, Number(response.headers.get('retry-after') ?? 0));
}

async function tell(method: string, path: string, body: object): Promise<void> {
  const response = await send(method, path, AbortSignal.timeout(SILENCE_MS), JSON.stringify(body));
  await response.arrayBuffer();
}

/** The lines of an answer. */
async function* read(path: string): AsyncGenerator<Line> {
  const silence = new AbortController();
  let timer = setTimeout(() => silence.abort(), SILENCE_MS);
  let rest = '';
  try {
    const response = await send('GET', path, silence.signal);
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

// ── The registration ───────────────────────────────────────────────────────────────────────────────────────

/**
 * By its name, so that doing it again is harmless. A file from before it was registered says where it stands.
 */
async function register(index: Index | undefined): Promise<void> {
  await tell('PUT', `/v1/admin/followers/${name}`, index === undefined ? {} : { seq: index.seq });
  // It may have been killed after it had saved, and before it could say so.
  if (index !== undefined) await acknowledge(index.seq);
}

/** Only what is saved: from now on the node counts on it. */
function acknowledge(seq: number, rebuilt = false): Promise<void> {
  return tell('POST', `/v1/admin/followers/${name}/acknowledge`, { seq, rebuilt });
}

// ── The index ──────────────────────────────────────────────────────────────────────────────────────────────

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

/** The effect and its offset in one step: a file is replaced as a whole or not at all. */
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
    const part = `/v1/admin/outbox/view?after=${after}&limit=10000${upTo}&follower=${name}`;
    for await (const line of read(part)) {
      if (line.op === 'position') ({ seq: after, pinned } = line);
      else if (line.op === 'closed') throw new Refused(line.code, 0);
      else apply(index, line);
    }
    if (pinned === undefined) throw new Error('the view was cut off');
  }
  index.seq = pinned;
  save(index);
  await acknowledge(index.seq, true);
  console.log(`built: ${Object.keys(index.events).length} events, up to ${index.seq}`);
  return index;
}

/** Until the stream ends; gives false when rows were missed: only a rebuild shows what was deleted. */
async function follow(index: Index, onLine: () => void): Promise<boolean> {
  let unsaved = 0;
  for await (const line of read(`/v1/admin/outbox?after=${index.seq}&follow=true&follower=${name}`)) {
    onLine();
    if (line.op === 'behind' || line.op === 'scrubbed') return false;
    if (line.op === 'closed') throw new Refused(line.code, 0);
    apply(index, line);
    index.seq = line.seq;
    unsaved += 1;
    if (line.op === 'position' || unsaved === ROWS_PER_SAVE) {
      save(index);
      await acknowledge(index.seq);
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
    await register(index);
    index ??= await build();
    console.log(`following after ${index.seq}`);
    const reached = await follow(index, () => {
      failures = 0;
    });
    if (!reached) index = undefined;
  } catch (error) {
    const code = error instanceof Refused ? error.code : undefined;
    if (code === 'COMMUNITY_NOT_FOUND') {
      // The whole community was erased, and with it what this file holds.
      rmSync(file, { force: true });
      console.log('the community is gone, and so is the index');
      break;
    }
    if (code !== undefined && MUST_REBUILD.includes(code)) index = undefined;
    else if (code !== undefined && !PASSING.includes(code)) throw error;
    if (error instanceof Refused) pauseMs = Math.max(pauseMs, error.retryAfterSeconds * 1000);
    console.log(`again in ${pauseMs} ms: ${error instanceof Error ? error.message : String(error)}`);
  }
  failures += 1;
  await delay(pauseMs);
}
