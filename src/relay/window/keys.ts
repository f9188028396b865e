/**
 * What filters ask for, as numbers: an author, a kind of an author, a kind, a tag, a bound topic, or
 * everything of a community. A key is there as long as an event has it. Values are kept exactly, so that two
 * keys never fall together; 64 hex characters take 32 bytes.
 */

import { type HashKey, HashTable, hashWords } from '../../events/hash.js';
import { isHex64 } from '../../events/rules/event.js';
import { Arena } from './arena.js';
import { IntColumn, Places } from './columns.js';

/** What a key weighs beside its value: its columns, its place in the table, the header of its value. */
export const KEY_BYTES = 40;

const TYPE_AUTHOR = 1;
const TYPE_AUTHOR_KIND = 2;
const TYPE_KIND = 3;
const TYPE_ALL = 4;
const TYPE_BOUND = 5;
/** A tag has its letter as its type; the value of one with this bit is 64 hex characters. */
const PACKED = 0x80;
const VALUE_AT = 5;
const SCRATCH_BYTES = 4_096;

export class Keys {
  private readonly places = new Places();
  private readonly values = new Arena();
  private readonly pieceOf = new IntColumn();
  private readonly hashes = new IntColumn();
  private readonly table = new HashTable((key) => this.hashes.get(key));
  private scratch = Buffer.alloc(SCRATCH_BYTES);
  private words = wordsOf(this.scratch);
  private length = 0;
  private readonly isSame = (key: number) =>
    this.values.isSame(this.pieceOf.get(key), this.scratch, this.length);

  constructor(private readonly hashKey: HashKey) {}

  get bytes(): number {
    return this.values.bytes + this.places.used * KEY_BYTES;
  }
  /** Gives memory of values back that are gone. */
  compact(): boolean {
    return this.values.compact();
  }

  // ── The value to look for ────────────────────────────────────────────────────────────────────────────────

  author(community: number, pubkey: string): this {
    this.begin(community, TYPE_AUTHOR);
    this.length = VALUE_AT + this.scratch.write(pubkey, VALUE_AT, 'hex');
    return this;
  }
  authorKind(community: number, author: number, kind: number): this {
    this.begin(community, TYPE_AUTHOR_KIND);
    this.scratch.writeInt32LE(author, VALUE_AT);
    this.scratch.writeInt32LE(kind, VALUE_AT + 4);
    this.length = VALUE_AT + 8;
    return this;
  }
  kind(community: number, kind: number): this {
    this.begin(community, TYPE_KIND);
    this.scratch.writeInt32LE(kind, VALUE_AT);
    this.length = VALUE_AT + 4;
    return this;
  }
  all(community: number): this {
    this.begin(community, TYPE_ALL);
    return this;
  }
  tag(community: number, letter: string, value: string): this {
    return this.text(community, letter.charCodeAt(0), value);
  }
  /** A topic that an event is bound to without naming it. */
  bound(community: number, topic: string): this {
    return this.text(community, TYPE_BOUND, topic);
  }

  private text(community: number, type: number, value: string): this {
    const isPacked: boolean = isHex64(value);
    if (isPacked) {
      this.begin(community, type | PACKED);
      this.length = VALUE_AT + this.scratch.write(value, VALUE_AT, 'hex');
      return this;
    }
    // A UTF-16 unit takes up to three bytes.
    this.makeRoom(VALUE_AT + value.length * 3 + 4);
    this.begin(community, type);
    this.length = VALUE_AT + this.scratch.write(value, VALUE_AT);
    return this;
  }

  private begin(community: number, type: number): void {
    this.words[0] = community;
    this.scratch[4] = type;
    this.length = VALUE_AT;
  }

  private makeRoom(bytes: number): void {
    if (bytes > this.scratch.length) this.useScratch((bytes + 3) & ~3);
    else if (this.scratch.length > SCRATCH_BYTES && bytes <= SCRATCH_BYTES) this.useScratch(SCRATCH_BYTES);
  }
  private useScratch(bytes: number): void {
    this.scratch = Buffer.alloc(bytes);
    this.words = wordsOf(this.scratch);
  }

  // ── Its number ───────────────────────────────────────────────────────────────────────────────────────────

  /** Of the value asked for last, or -1 when no event has it. */
  find(): number {
    return this.table.find(this.hash(), this.isSame);
  }

  /** Makes the value that was looked for last, and not found, a key. */
  add(): number {
    const hash = this.hash();
    const key = this.places.take();
    this.pieceOf.set(key, this.values.put(this.scratch, this.length));
    this.hashes.set(key, hash);
    this.table.add(hash, key);
    return key;
  }

  remove(key: number): void {
    this.table.remove(this.hashes.get(key), key);
    this.values.free(this.pieceOf.get(key));
    this.places.giveBack(key);
  }

  private hash(): number {
    const words = (this.length + 3) >>> 2;
    this.scratch.fill(0, this.length, words << 2);
    return hashWords(this.hashKey, this.words, words);
  }

  // ── Back to the value ────────────────────────────────────────────────────────────────────────────────────

  isTag(key: number, letter: string): boolean {
    return (this.typeOf(key) & ~PACKED) === letter.charCodeAt(0);
  }
  isBound(key: number): boolean {
    return (this.typeOf(key) & ~PACKED) === TYPE_BOUND;
  }
  /** Of a tag or a bound topic. */
  valueOf(key: number): string {
    const bytes = this.values.view(this.pieceOf.get(key));
    return bytes.toString((bytes[4]! & PACKED) === 0 ? 'utf8' : 'hex', VALUE_AT);
  }

  private typeOf(key: number): number {
    return this.values.byte(this.pieceOf.get(key), 4);
  }
}

function wordsOf(scratch: Buffer): Int32Array {
  return new Int32Array(scratch.buffer, scratch.byteOffset, scratch.length >>> 2);
}
