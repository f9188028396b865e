/**
 * The newest events of the store, in memory. The fan-out adds and removes events in the order of the outbox;
 * older ones are read from the database in the background (window/filling.ts). The fan-out removes an event
 * when it reads its `delete`. Each query checks which events it may show, after the outbox has been read up
 * to now (I5, I6), and by the clock (I7).
 */
import { randomBytes } from 'node:crypto';
import { factKey } from '../events/rules/facts.js';
import type { Filter } from '../events/rules/filter.js';
import type { PendingMark } from '../events/store.js';
import { type Answer, type Question, readWindow } from './window/read.js';
import { type Held, Window } from './window/window.js';

const MIB = 1_048_576;
/** Deletions that are remembered while one page is read; after more of them the page is read again. */
const GONE_MAX = 10_000;

/**
 * A page that is being read. Its rows are from some moment after the read began, so an event that was deleted
 * meanwhile must not return with them.
 */
export class Reading {
  private readonly gone = new Set<string>();
  /** Nothing of the page may be used: events were hidden meanwhile that are not known one by one. */
  isVoid = false;

  constructor(readonly community: number) {}

  onDelete(key: string): void {
    this.gone.add(key);
    if (this.gone.size > GONE_MAX) this.isVoid = true;
  }
  mayHold(id: string): boolean {
    return !this.isVoid && !this.gone.has(factKey(this.community, id));
  }
}

export class Memory {
  private readonly hashKey = { low: randomBytes(4).readInt32LE(), high: randomBytes(4).readInt32LE() };
  private readonly readings = new Set<Reading>();
  private bytesMax = 0;
  window = new Window(this.hashKey, this.bytesMax);
  /** Called after everything was dropped. */
  onCleared: () => void = () => undefined;

  /**
   * The budget of all communities together; with 0 nothing is held. Events beyond it are evicted step by
   * step: call `trim` until it returns true.
   */
  allow(megabytes: number): void {
    this.bytesMax = megabytes * MIB;
    if (megabytes === 0 && this.window.isUsed) this.clear();
    this.window.allow(this.bytesMax);
  }

  /**
   * An event of a time before the window is not held, unless a page is being read that may reach it: its rows
   * may be of a moment before the event came.
   */
  onUpsert(community: number, held: Held): void {
    const { created_at: createdAt, id } = held.event;
    if (!this.window.covers(community, { createdAt, id }) && !this.isRead(community)) return;
    this.window.add(community, held);
    this.window.trim();
  }
  onDelete(community: number, id: string): void {
    this.window.remove(community, id);
    for (const reading of this.readings) reading.onDelete(factKey(community, id));
  }
  onMarks(marks: readonly PendingMark[]): void {
    for (const { community, pubkey, until } of marks) this.window.vanish(community, pubkey, until);
    for (const reading of this.readings) reading.isVoid = true;
  }
  /** After a change that names no events: everything is dropped and filled again. */
  clear(): void {
    this.window.close();
    this.window = new Window(this.hashKey, this.bytesMax);
    for (const reading of this.readings) reading.isVoid = true;
    this.onCleared();
  }

  private isRead(community: number): boolean {
    for (const reading of this.readings) if (reading.community === community) return true;
    return false;
  }

  /** An event that is deleted while the page is read does not return with it. */
  async reading<T>(community: number, read: (reading: Reading) => Promise<T>): Promise<T> {
    const reading = new Reading(community);
    this.readings.add(reading);
    try {
      return await read(reading);
    } finally {
      this.readings.delete(reading);
    }
  }

  /** Is there anything of this community that may answer? */
  knows(community: number): boolean {
    return this.window.extent(community).from < Number.POSITIVE_INFINITY;
  }
  read(filter: Filter, question: Question): Answer | undefined {
    return readWindow(this.window, filter, question);
  }
  /** A copy of the payload of an event that was found before; undefined when it is not in memory. */
  payload(community: number, id: string): Buffer | undefined {
    const place = this.find(community, id);
    return place === undefined ? undefined : Buffer.from(this.window.payload(place));
  }
  holds(community: number, id: string): boolean {
    return this.find(community, id) !== undefined;
  }

  private find(community: number, id: string): number | undefined {
    const place = this.window.find(community, id);
    return place === -1 || this.window.isVanished(place) ? undefined : place;
  }
}
