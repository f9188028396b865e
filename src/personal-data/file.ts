/**
 * Writes the file of an export: a zip with one JSONL file per store of the registry, manifest.json and
 * README.txt. All rows of the database come from one snapshot. The file is streamed (rows → lines → zip →
 * receiver), and each stage waits for the next, so memory does not grow with the amount of data (I14).
 */
import { Readable } from 'node:stream';
import type { ClientBase } from 'pg';
import { ZipFile } from 'yazl';
import type { DynamodbAudit } from '../audit/dynamodb.js';
import type { EventStore } from '../events/store.js';
import { inSnapshot, type Person, shapeMovedAudit } from './personal-data.sql.js';
import { PERSONAL_STORES, type PersonalStore } from './registry.js';

export const FORMAT_VERSION = 1;
/** Lines are passed on in chunks: one step of the stream covers many rows. */
const CHUNK_CHARS = 65_536;

export interface PersonalFileOptions {
  /** A connection used by nothing else, outside any transaction. */
  readonly client: ClientBase;
  readonly person: Person;
  readonly community: { readonly slug: string; readonly name: string };
  readonly now: number;
  readonly signal: AbortSignal;
  /** The store that rows of the audit log are moved to. */
  readonly audit?: DynamodbAudit | undefined;
  /** Holds lines of some files, where events are in no table of the database. */
  readonly events?: Pick<EventStore, 'personal'> | undefined;
  /** Called after each chunk of rows. */
  readonly onRows?: (rows: number) => void;
}

export interface PersonalFile {
  readonly bytes: number;
  readonly rows: number;
}

/** Passes the bytes of the file to `take`, one piece after another. An error thrown by `take` stops it. */
export function writePersonalFile(
  options: PersonalFileOptions,
  take: (piece: Buffer) => Promise<void>,
): Promise<PersonalFile> {
  return inSnapshot(options.client, async () => {
    const zip = new ZipWriter(options);
    let bytes = 0;
    try {
      for await (const piece of zip.start()) {
        options.signal.throwIfAborted();
        bytes += piece.length;
        await take(piece);
      }
    } finally {
      await zip.stop();
    }
    return { bytes, rows: zip.rows };
  });
}

/** The zip that is being written. */
class ZipWriter {
  rows = 0;
  private readonly zip = new ZipFile();
  private readonly counts = new Map<string, number>();
  private reading: Readable | undefined;

  constructor(private readonly options: PersonalFileOptions) {}

  start(): AsyncIterable<Buffer> {
    const output = this.zip.outputStream as Readable;
    const mtime = new Date(this.options.now);
    const add = (name: string, lines: () => AsyncIterable<string>) =>
      this.zip.addReadStreamLazy(name, { mtime }, (give) => {
        this.reading = Readable.from(lines(), { objectMode: false });
        // yazl does not watch its source streams. Without this, an error in one would leave the reader
        // waiting for ever.
        this.reading.on('error', (error) => output.destroy(error));
        give(null, this.reading);
      });
    add('README.txt', () => once(readme(this.options)));
    for (const store of PERSONAL_STORES) add(`${store.name}.jsonl`, () => this.lines(store));
    add('manifest.json', () => this.manifest());
    this.zip.on('error', (error: Error) => output.destroy(error));
    this.zip.end();
    return output;
  }

  /** Waits until the connection is free again: an open cursor must be closed before the next query. */
  async stop(): Promise<void> {
    const { reading } = this;
    (this.zip.outputStream as Readable).destroy();
    if (reading === undefined || reading.closed) return;
    await new Promise<void>((resolve) => {
      reading.once('close', resolve);
      reading.destroy();
    });
  }

  private async *lines(store: PersonalStore): AsyncGenerator<string> {
    const { signal, onRows } = this.options;
    let lines = '';
    let count = 0;
    for await (const row of this.rowsOf(store)) {
      lines += `${JSON.stringify(row)}\n`;
      count += 1;
      this.rows += 1;
      if (lines.length < CHUNK_CHARS) continue;
      signal.throwIfAborted();
      onRows?.(this.rows);
      yield lines;
      lines = '';
    }
    this.counts.set(store.name, count);
    if (lines !== '') yield lines;
  }

  private async *rowsOf(store: PersonalStore): AsyncGenerator<object> {
    const { client, person, audit, events, now } = this.options;
    if (events !== undefined) yield* events.personal(store.name, person);
    if (store.name === 'audit-log' && audit !== undefined) {
      const { community, pubkey } = person;
      for await (const entries of audit.read({ community, pubkey, to: now }))
        yield* await shapeMovedAudit(client, person, entries);
    }
    yield* store.rows(client, person);
  }

  /** Written last, because the row counts are known only then. */
  private async *manifest(): AsyncGenerator<string> {
    const { person, community, now } = this.options;
    const files = PERSONAL_STORES.map(({ name, about }) => ({
      file: `${name}.jsonl`,
      about,
      rows: this.counts.get(name) ?? 0,
    }));
    const manifest = {
      format: 'minato-personal-data',
      version: FORMAT_VERSION,
      made_at: now,
      community: community.slug,
      community_name: community.name,
      pubkey: person.pubkey,
      files,
    };
    yield `${JSON.stringify(manifest, null, 2)}\n`;
  }
}

async function* once(text: string): AsyncGenerator<string> {
  yield text;
}

function readme({ person, community, now }: PersonalFileOptions): string {
  const files = PERSONAL_STORES.map(({ name, about }) => `${name}.jsonl\n    ${about}`);
  return `Your data at ${community.name} (${community.slug})
Public key: ${person.pubkey}
Made at:    ${new Date(now).toISOString()}

This is everything that this community's node holds about this key in its database, at one moment.
Each file has one JSON object per line; an empty file means that there is nothing. manifest.json says
how many lines each file has. Times are milliseconds since 1970, except created_at, requested_at and
until of events and their deletions, which are seconds.

${files.join('\n')}

Not included: what others wrote about you, mentions of you and reports about you; addresses and rates
that are deleted within an hour; the operator's logs and backups. Ask the operator about those.
`;
}
