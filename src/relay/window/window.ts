/**
 * The newest events of every community in memory, within a budget of bytes (I14): complete down to a place of
 * each community, with a list for each author, kind, author with kind, and tag. Pure: relay/memory.ts feeds
 * it from the outbox, and a reader has read the outbox up to now before (I5, I6). Time and rules are applied
 * when a question is answered (read.ts; I7, I8).
 *
 * An event below that place may be held as well. It answers for its id alone, because others of its time may
 * be missing.
 */

import { type HashKey, HashTable, hashWords } from '../../events/hash.js';
import { KIND_GIFT_WRAP } from '../../events/rules/deletion.js';
import type { NostrEvent } from '../../events/rules/event.js';
import { expirationOf } from '../../events/rules/expiration.js';
import type { NewestPlace } from '../../events/store.js';
import { Arena } from './arena.js';
import { Blocks, sizeClassFor } from './blocks.js';
import { FloatColumn, IntColumn, Places } from './columns.js';
import { Keys } from './keys.js';
import { Postings } from './postings.js';

/** Bytes of an event beside its payload and its keys: its columns and its entry in the table of ids. */
const EVENT_BYTES = 108;
export const ID_WORDS = 8;
const NEVER = Number.POSITIVE_INFINITY;
/** The keys of an event begin with these; its tags and bound topics follow. */
export const KEY_OF = { author: 0, authorKind: 1, kind: 2, all: 3 } as const;
const FIXED_KEYS = 4;
/** Events that one change evicts at most, so that no change takes long; the next change continues. */
const EVICTED_AT_ONCE = 16;

export interface Held {
  readonly seq: number;
  readonly ingestedAt: number;
  readonly event: NostrEvent;
  /** UTF-8, as it is sent. */
  readonly payload: Uint8Array;
  readonly bound: readonly string[];
}

/** What is held of one community. */
export interface Extent {
  /**
   * Every event that an answer gives before this place, and at it, is held (newest first, lowest id first).
   * It is another object after any of the community's events was evicted.
   */
  readonly downTo: NewestPlace;
  /** Every event from this second on is held; -Infinity: every event. */
  readonly from: number;
  readonly events: number;
}
class Community implements Extent {
  downTo: NewestPlace = NOTHING;
  events = 0;
  bytes = 0;

  /** Of the second of that place, some events may be missing. */
  get from(): number {
    return this.downTo.createdAt + 1;
  }
}
export const NOTHING: NewestPlace = { createdAt: Number.POSITIVE_INFINITY, id: '' };
export const EVERYTHING: NewestPlace = { createdAt: Number.NEGATIVE_INFINITY, id: '' };
const UNKNOWN: Extent = new Community();

export class Window {
  readonly keys: Keys;
  private readonly payloads = new Arena();
  private readonly blocks = new Blocks();
  readonly postings = new Postings(this.blocks, (a, b) => this.compare(a, b));
  private readonly places = new Places();
  private readonly ids = new IntColumn();
  private readonly hashes = new IntColumn();
  private readonly communityOf = new IntColumn();
  private readonly seqs = new FloatColumn();
  private readonly createdAts = new FloatColumn();
  private readonly ingestedAts = new FloatColumn();
  private readonly expiresAts = new FloatColumn();
  private readonly kinds = new IntColumn();
  private readonly payloadOf = new IntColumn();
  private readonly keyBlockOf = new IntColumn();
  private readonly keyCountOf = new IntColumn();
  private readonly table = new HashTable((event) => this.hashes.get(event));
  private readonly communities = new Map<number, Community>();
  /** Keys of those who asked to vanish, as authors and as recipients, and until when. */
  private readonly vanished = new Map<number, number>();
  private isClosed = false;
  private readonly idBytes = Buffer.alloc(ID_WORDS * 4);
  /** The community and the id that are looked for. */
  private readonly asked = new Int32Array(1 + ID_WORDS);
  private readonly isAsked = (event: number) => this.hasAskedId(event);
  /** Bytes that it may take. */
  private bytesMax: number;

  constructor(
    private readonly hashKey: HashKey,
    bytesMax: number,
  ) {
    this.keys = new Keys(hashKey);
    this.bytesMax = bytesMax;
  }

  get bytes(): number {
    return this.payloads.bytes + this.keys.bytes + this.blocks.used * 4 + this.places.used * EVENT_BYTES;
  }
  get isUsed(): boolean {
    return this.communities.size > 0;
  }
  get events(): number {
    return this.places.used;
  }

  extent(community: number): Extent {
    return this.communities.get(community) ?? UNKNOWN;
  }

  /** From now on complete down to this place. */
  reach(community: number, downTo: NewestPlace): void {
    this.of(community).downTo = downTo;
  }

  /** Is every event of this time and id held, if there is one? */
  covers(community: number, { createdAt, id }: NewestPlace): boolean {
    const { downTo } = this.extent(community);
    return createdAt > downTo.createdAt || (createdAt === downTo.createdAt && id <= downTo.id);
  }

  private of(community: number): Community {
    let of = this.communities.get(community);
    if (of === undefined) {
      of = new Community();
      this.communities.set(community, of);
    }
    return of;
  }

  /** True when it is held now and was not before. */
  add(community: number, { event, seq, ingestedAt, payload, bound }: Held): boolean {
    const hash = this.askId(community, event.id);
    const known = this.table.find(hash, this.isAsked);
    if (known !== -1) {
      // Removed and restored: it has the number under which it came again.
      if (this.seqs.get(known) >= seq) return false;
      this.drop(known);
    }
    const place = this.places.take();
    for (let word = 0; word < ID_WORDS; word++) this.ids.set(place * ID_WORDS + word, this.asked[1 + word]!);
    this.hashes.set(place, hash);
    this.communityOf.set(place, community);
    this.seqs.set(place, seq);
    this.createdAts.set(place, event.created_at);
    this.ingestedAts.set(place, ingestedAt);
    this.expiresAts.set(place, expirationOf(event) ?? NEVER);
    this.kinds.set(place, event.kind);
    this.payloadOf.set(place, this.payloads.put(payload));
    this.table.add(hash, place);
    this.file(place, this.keysOf(community, event, bound));
    const of = this.of(community);
    of.events += 1;
    of.bytes += this.weightOf(place);
    if (this.isVanished(place)) this.endMarks(place);
    return known === -1;
  }

  remove(community: number, id: string): void {
    const place = this.find(community, id);
    if (place !== -1) this.drop(place);
  }

  /** Nothing that was found in it counts any more. */
  close(): void {
    this.isClosed = true;
  }

  // ── Who asked to vanish ──────────────────────────────────────────────────────────────────────────────────

  /**
   * Hides events of this key up to a time, and gift wraps to it, until the erasure deletes them. A key
   * without events in the window needs no mark.
   */
  vanish(community: number, pubkey: string, until: number): void {
    const author = this.keys.author(community, pubkey).find();
    const recipient = this.keys.tag(community, 'p', pubkey).find();
    for (const key of [author, recipient])
      if (key !== -1) this.vanished.set(key, Math.max(until, this.vanished.get(key) ?? until));
  }

  isVanished(place: number): boolean {
    return this.vanished.size > 0 && this.someVanished(place, () => true);
  }

  private someVanished(place: number, isIt: (key: number) => boolean): boolean {
    const createdAt = this.createdAts.get(place);
    const isMarked = (key: number) =>
      createdAt <= (this.vanished.get(key) ?? Number.NEGATIVE_INFINITY) && isIt(key);
    if (isMarked(this.key(place, KEY_OF.author))) return true;
    return this.kinds.get(place) === KIND_GIFT_WRAP && this.someTag(place, isMarked);
  }

  /** The store accepts no event that a mark hides. So the marks that hide this one have ended. */
  private endMarks(place: number): void {
    const ended: number[] = [];
    this.someVanished(place, (key) => ended.push(key) < 0);
    for (const key of ended) this.vanished.delete(key);
  }

  // ── The budget ───────────────────────────────────────────────────────────────────────────────────────────

  get isFull(): boolean {
    return this.bytes > this.bytesMax;
  }
  /** How much of the budget is taken. */
  get share(): number {
    return this.bytes / this.bytesMax;
  }
  allow(bytesMax: number): void {
    this.bytesMax = bytesMax;
  }

  /**
   * While the window is over its budget: gives one slab of freed memory back, or evicts the oldest events of
   * the largest community, a bounded number. So call it until it returns true. The community is then complete
   * only after the second of the last one.
   */
  trim(): boolean {
    if (this.isFull && (this.payloads.compact() || this.keys.compact())) return !this.isFull;
    for (let step = 0; step < EVICTED_AT_ONCE && this.isFull && this.places.used > 0; step++)
      this.evictOldest();
    return !this.isFull || this.places.used === 0;
  }

  /** Holds less than half as much as the largest community. */
  isSmall(community: number): boolean {
    const bytes = this.communities.get(community)?.bytes ?? 0;
    return bytes * 2 < (this.largest()?.[1].bytes ?? 0);
  }

  private largest(): [number, Community] | undefined {
    let largest: [number, Community] | undefined;
    for (const entry of this.communities)
      if (largest === undefined || entry[1].bytes > largest[1].bytes) largest = entry;
    return largest;
  }

  private evictOldest(): void {
    const [community, of] = this.largest()!;
    const oldest = this.postings.oldest(this.keys.all(community).find());
    // Before all events of its second: those that are left of it are read again with it.
    const createdAt = Math.max(of.downTo.createdAt, this.createdAts.get(oldest));
    of.downTo = { createdAt, id: '' };
    this.drop(oldest);
  }

  // ── One event ────────────────────────────────────────────────────────────────────────────────────────────

  /** Its place, or -1. */
  find(community: number, id: string): number {
    return this.table.find(this.askId(community, id), this.isAsked);
  }
  /** Is this event still at this place? */
  isAt(place: number, seq: number): boolean {
    return !this.isClosed && this.seqs.get(place) === seq;
  }
  seq(place: number): number {
    return this.seqs.get(place);
  }
  createdAt(place: number): number {
    return this.createdAts.get(place);
  }
  ingestedAt(place: number): number {
    return this.ingestedAts.get(place);
  }
  /** Infinity when it does not expire. */
  expiresAt(place: number): number {
    return this.expiresAts.get(place);
  }
  kind(place: number): number {
    return this.kinds.get(place);
  }
  copyId(place: number, into: Int32Array, at: number): void {
    for (let word = 0; word < ID_WORDS; word++) into[at + word] = this.ids.get(place * ID_WORDS + word);
  }
  /** A view that holds until the window changes. */
  payload(place: number): Buffer {
    return this.payloads.view(this.payloadOf.get(place));
  }
  payloadBytes(place: number): number {
    return this.payloads.length(this.payloadOf.get(place));
  }
  key(place: number, which: number): number {
    return this.blocks.get(this.keyBlockOf.get(place) + which);
  }
  /** Is one of its tags or bound topics such a key? */
  someTag(place: number, isIt: (key: number) => boolean): boolean {
    const block = this.keyBlockOf.get(place);
    const count = this.keyCountOf.get(place);
    for (let at = FIXED_KEYS; at < count; at++) if (isIt(this.blocks.get(block + at))) return true;
    return false;
  }

  /** Negative when the first is older, or of the same second and with the higher id: later in an answer. */
  compare(a: number, b: number): number {
    const older = this.createdAts.get(a) - this.createdAts.get(b);
    if (older !== 0) return older;
    for (let word = 0; word < ID_WORDS; word++) {
      const higher = (this.ids.get(b * ID_WORDS + word) >>> 0) - (this.ids.get(a * ID_WORDS + word) >>> 0);
      if (higher !== 0) return higher;
    }
    return 0;
  }

  // ── Within ───────────────────────────────────────────────────────────────────────────────────────────────

  private askId(community: number, id: string): number {
    this.idBytes.write(id, 'hex');
    this.asked[0] = community;
    for (let word = 0; word < ID_WORDS; word++) this.asked[1 + word] = this.idBytes.readInt32BE(word * 4);
    return hashWords(this.hashKey, this.asked, 1 + ID_WORDS);
  }

  private hasAskedId(event: number): boolean {
    for (let word = 0; word < ID_WORDS; word++)
      if (this.ids.get(event * ID_WORDS + word) !== this.asked[1 + word]) return false;
    return this.communityOf.get(event) === this.asked[0];
  }

  private keysOf(
    community: number,
    { pubkey, kind, tags }: NostrEvent,
    bound: readonly string[],
  ): Set<number> {
    const author = this.keyFor(this.keys.author(community, pubkey));
    const keys = new Set([
      author,
      this.keyFor(this.keys.authorKind(community, author, kind)),
      this.keyFor(this.keys.kind(community, kind)),
      this.keyFor(this.keys.all(community)),
    ]);
    for (const [name, value] of tags) {
      if (value === undefined || !isLetter(name!)) continue;
      keys.add(this.keyFor(this.keys.tag(community, name!, value)));
    }
    for (const topic of bound) keys.add(this.keyFor(this.keys.bound(community, topic)));
    return keys;
  }

  /** With its list, when it is new. */
  private keyFor(keys: Keys): number {
    const known = keys.find();
    if (known !== -1) return known;
    const key = keys.add();
    this.postings.open(key);
    return key;
  }

  private file(place: number, keys: ReadonlySet<number>): void {
    const block = this.blocks.take(sizeClassFor(keys.size));
    this.keyBlockOf.set(place, block);
    this.keyCountOf.set(place, keys.size);
    let at = block;
    for (const key of keys) {
      this.blocks.set(at++, key);
      this.postings.add(key, place);
    }
  }

  private drop(place: number): void {
    const of = this.communities.get(this.communityOf.get(place))!;
    of.events -= 1;
    of.bytes -= this.weightOf(place);
    const block = this.keyBlockOf.get(place);
    const count = this.keyCountOf.get(place);
    for (let at = 0; at < count; at++) {
      const key = this.blocks.get(block + at);
      if (this.postings.remove(key, place)) continue;
      this.keys.remove(key);
      this.vanished.delete(key);
    }
    this.blocks.free(block, sizeClassFor(count));
    this.payloads.free(this.payloadOf.get(place));
    this.table.remove(this.hashes.get(place), place);
    this.seqs.set(place, -1);
    this.places.giveBack(place);
  }

  /** About: which community holds most is all that follows from it. */
  private weightOf(place: number): number {
    return this.payloadBytes(place) + EVENT_BYTES + this.keyCountOf.get(place) * 8;
  }
}

const TEXT_BYTES = Buffer.alloc(ID_WORDS * 4);

/** An id as text, from the words of `copyId`. */
export function idText(words: Int32Array, at: number): string {
  for (let word = 0; word < ID_WORDS; word++) TEXT_BYTES.writeInt32BE(words[at + word]!, word * 4);
  return TEXT_BYTES.toString('hex');
}

function isLetter(name: string): boolean {
  if (name.length !== 1) return false;
  const code = name.charCodeAt(0) | 0x20;
  return code >= 0x61 && code <= 0x7a;
}
