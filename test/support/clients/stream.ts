/** Reads a stream of the API: lines as they arrive, one JSON object each. */

import { eventually } from '../cli.js';
import { type Asking, authorization, credential } from './api.js';

export interface Line {
  readonly op: string;
  readonly seq: number;
  readonly event_id?: string;
  readonly reason?: string | null;
  readonly event?: { readonly id: string; readonly content: string } | null;
  readonly [name: string]: unknown;
}

export class LineReader {
  readonly lines: Line[] = [];
  /** The text received so far. */
  text = '';
  ended: 'whole' | 'cut' | undefined;
  private readonly leaving = new AbortController();

  private constructor(readonly response: Response) {}

  static async open(base: string, path: string, { as, headers = {} }: Asking): Promise<LineReader> {
    const url = base + path;
    const signed = as === undefined ? undefined : authorization(credential(as, { method: 'GET', url }));
    const leaving = new AbortController();
    const response = await fetch(url, {
      headers: { ...(signed === undefined ? {} : { authorization: signed }), ...headers },
      signal: leaving.signal,
    });
    const reader = new LineReader(response);
    reader.leaving.signal.addEventListener('abort', () => leaving.abort());
    reader.read().then(
      () => {
        reader.ended = 'whole';
      },
      () => {
        reader.ended = 'cut';
      },
    );
    return reader;
  }

  private async read(): Promise<void> {
    const decoder = new TextDecoder();
    let rest = '';
    for await (const bytes of this.response.body!) {
      const text = decoder.decode(bytes, { stream: true });
      this.text += text;
      const parts = (rest + text).split('\n');
      rest = parts.pop()!;
      for (const part of parts) {
        const json = part.replace(/^data: /, '');
        if (json.startsWith('{')) this.lines.push(JSON.parse(json) as Line);
      }
    }
  }

  waitFor(what: string, condition: (line: Line) => boolean): Promise<Line> {
    return eventually(what, () => this.lines.find(condition), 20_000);
  }

  async end(): Promise<'whole' | 'cut'> {
    return eventually('the stream ends', () => this.ended, 20_000);
  }

  /** All lines of a stream that the server ends. */
  async all(): Promise<Line[]> {
    await this.end();
    return this.lines;
  }

  async close(): Promise<void> {
    this.leaving.abort();
    await this.end();
  }
}
