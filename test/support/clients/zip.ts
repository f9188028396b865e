/** Reads a zip: the text of each file. */
import { once } from 'node:events';
import { text } from 'node:stream/consumers';
import { fromBuffer } from 'yauzl';

export function readZip(bytes: Buffer): Promise<Map<string, string>> {
  return new Promise((resolve, reject) => {
    fromBuffer(bytes, { lazyEntries: true }, (error, zip) => {
      if (error !== null) return reject(error);
      const files = new Map<string, string>();
      zip.on('entry', (entry) => {
        zip.openReadStream(entry, async (failed, stream) => {
          if (failed !== null) return reject(failed);
          files.set(entry.fileName, await text(stream));
          zip.readEntry();
        });
      });
      once(zip, 'end').then(() => resolve(files), reject);
      zip.readEntry();
    });
  });
}

/** The rows of one of its files. */
export function rowsOf(files: ReadonlyMap<string, string>, name: string): Record<string, unknown>[] {
  const lines = (files.get(`${name}.jsonl`) ?? '').split('\n').filter((line) => line !== '');
  return lines.map((line) => JSON.parse(line) as Record<string, unknown>);
}

/** Counts the lines of one file that is too large for a string. */
export function countLines(bytes: Buffer, name: string): Promise<number> {
  return new Promise((resolve, reject) => {
    fromBuffer(bytes, { lazyEntries: true }, (error, zip) => {
      if (error !== null) return reject(error);
      zip.on('end', () => reject(new Error(`there is no ${name}`)));
      zip.on('entry', (entry) => {
        if (entry.fileName !== name) return zip.readEntry();
        zip.openReadStream(entry, async (failed, stream) => {
          if (failed !== null) return reject(failed);
          let lines = 0;
          for await (const chunk of stream) for (const byte of chunk as Buffer) if (byte === 10) lines += 1;
          resolve(lines);
        });
      });
      zip.readEntry();
    });
  });
}
