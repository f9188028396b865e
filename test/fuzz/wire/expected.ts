/**
 * What the frames of one batch must be answered with (I2): an EVENT with exactly one OK, a REQ, COUNT or
 * NEG-OPEN with at least one answer of its kind. Written from the NIPs, not from the node's code.
 */
import { Broken } from '../target.js';

/** Depth and bytes up to which the answer is certain: beyond them the node may refuse to parse. */
const DEPTH_SURE = 14;
const BYTES_SURE = 100_000;
/** Of an id that is too long the answer has so many characters. */
const ID_ANSWERED_MAX = 256;

export class Expected {
  /** By id: how many OKs must come, and how many may. */
  private readonly oks = new Map<string, { least: number; most: number; input: string }>();
  /** By verb and id of a subscription: the frame that must be answered. */
  private readonly answers = new Map<string, { readonly input: string; readonly by: readonly string[] }>();
  private readonly got = new Map<string, number>();

  sent(input: string): void {
    const message = parse(input);
    const isSure = input.length < BYTES_SURE && depthOf(message) < DEPTH_SURE;
    const [verb, first] = Array.isArray(message) ? message : [];
    if (verb === 'EVENT' || verb === 'AUTH') this.sentEvent(input, first, isSure);
    else if (message === undefined) this.sentUnparsed(input);
    if (typeof first !== 'string' || first === '' || !isSure) return;
    const id = first.slice(0, ID_ANSWERED_MAX);
    if (verb === 'REQ') this.answers.set(`REQ ${id}`, { input, by: ['EOSE', 'CLOSED'] });
    if (verb === 'COUNT') this.answers.set(`COUNT ${id}`, { input, by: ['COUNT', 'CLOSED'] });
    // A REQ that is closed or replaced before its EOSE gets none.
    if (verb === 'CLOSE') this.answers.delete(`REQ ${id}`);
  }

  received([verb, id, accepted]: readonly unknown[]): void {
    if (verb === 'OK') {
      this.count(`OK ${String(id)}`);
      if (typeof accepted !== 'boolean') throw new Error('an OK without its verdict');
      return;
    }
    for (const kind of ['REQ', 'COUNT']) {
      const open = this.answers.get(`${kind} ${String(id)}`);
      if (open?.by.includes(String(verb))) this.answers.delete(`${kind} ${String(id)}`);
    }
  }

  get isComplete(): boolean {
    return this.missing() === undefined && this.answers.size === 0;
  }

  /** Throws if an answer is missing, or there is one too many. */
  check(): void {
    const missing = this.missing();
    if (missing !== undefined) throw new Broken('sockets', missing.input, 'an EVENT without its OK');
    const [unanswered] = this.answers.values();
    if (unanswered !== undefined) throw new Broken('sockets', unanswered.input, 'a query without an answer');
    for (const [id, { most, input }] of this.oks)
      if ((this.got.get(`OK ${id}`) ?? 0) > most) throw new Broken('sockets', input, 'an OK too many');
  }

  private missing(): { readonly input: string } | undefined {
    for (const [id, { least, input }] of this.oks)
      if ((this.got.get(`OK ${id}`) ?? 0) < least) return { input };
    return undefined;
  }

  private sentEvent(input: string, event: unknown, isSure: boolean): void {
    const id = typeof event === 'object' && event !== null ? (event as { id?: unknown }).id : undefined;
    if (typeof id === 'string') this.expectOk(id.slice(0, 128), isSure ? 1 : 0, input);
  }

  /** A message that is not JSON may still get the OK of the id in it. */
  private sentUnparsed(input: string): void {
    for (const [, id] of input.matchAll(/"id"\s*:\s*"([0-9a-f]{64})"/g)) this.expectOk(id!, 0, input);
  }

  private expectOk(id: string, least: number, input: string): void {
    const before = this.oks.get(id) ?? { least: 0, most: 0 };
    this.oks.set(id, { least: before.least + least, most: before.most + 1, input });
  }

  private count(key: string): void {
    this.got.set(key, (this.got.get(key) ?? 0) + 1);
  }
}

function parse(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

function depthOf(value: unknown): number {
  if (typeof value !== 'object' || value === null) return 0;
  return 1 + Math.max(0, ...Object.values(value).map(depthOf));
}
