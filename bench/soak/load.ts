/**
 * What a soak does to the node, at a steady rate: posts, some with an expiration; versions of profiles and
 * articles; deletions of earlier posts; ephemeral events. Topics are full, so that their oldest events are
 * purged. Each minute somebody new posts and is then erased.
 */
import { createHash, randomUUID } from 'node:crypto';
import { setTimeout as sleep } from 'node:timers/promises';
import { Connection } from '../client.js';
import type { BenchEvent, Sign } from '../sign.js';

const PUBLISHERS = 4;
const READERS = 40;
const AUTHORS = 300;
export const TOPICS = 6;
const TICK_MS = 50;
/** Posts that may still be deleted. */
const DELETABLE_MAX = 5_000;
const UNANSWERED_MAX = 20_000;
const TEXT = 'the harbour is quiet, the boats are in, and somebody mends a net by the light of a lamp ';

export const topicOf = (number: number) => `kukuri:${hash(`soak ${number}`).toString('hex')}`;
const hash = (text: string) => createHash('sha256').update(text).digest();
const keyOf = (name: string) => hash(`soak key ${name}`);

/** Of the time since the last sample. */
export interface LoadCounts {
  sent: number;
  answered: number;
  refused: number;
  delivered: number;
  latenciesMs: number[];
}

export class Load {
  readonly refusals = new Map<string, number>();
  private readonly keys = Array.from({ length: AUTHORS }, (_, number) => keyOf(`author ${number}`));
  private readonly posts: Deletable[] = [];
  private readonly sentAt = new Map<string, number>();
  private readonly connections: Connection[] = [];
  private counts = newCounts();
  private leaver = keyOf(randomUUID());
  private isRunning = true;
  private owed = 0;
  private made = 0;

  constructor(
    private readonly url: string,
    private readonly sign: Sign,
    private readonly rate: number,
  ) {}

  async open(): Promise<void> {
    for (let number = 0; number < PUBLISHERS + READERS; number += 1) {
      const connection = await Connection.open(this.url);
      connection.onFrame = (frame) => this.onFrame(frame);
      if (number >= PUBLISHERS) this.subscribe(connection, number);
      this.connections.push(connection);
    }
  }

  /** Until it is stopped. A node that falls behind is not pressed further: the sample shows it. */
  async run(): Promise<void> {
    let before = performance.now();
    while (this.isRunning) {
      await sleep(TICK_MS);
      const now = performance.now();
      this.owed += ((now - before) / 1_000) * this.rate;
      before = now;
      while (this.owed >= 1) {
        this.owed -= 1;
        if (this.sentAt.size < UNANSWERED_MAX) this.publish(this.make());
      }
      this.renewReader();
    }
  }

  stop(): void {
    this.isRunning = false;
    for (const connection of this.connections) connection.close();
  }

  take(): LoadCounts {
    const counts = this.counts;
    this.counts = newCounts();
    return counts;
  }

  /** The one who posted since the last call, to be erased now. */
  takeLeaver(): string {
    const key = this.leaver;
    this.leaver = keyOf(randomUUID());
    return this.event(key, { kind: 1 }).pubkey;
  }

  private publish(event: BenchEvent): void {
    this.sentAt.set(event.id, performance.now());
    this.counts.sent += 1;
    this.connections[this.made % PUBLISHERS]!.send(JSON.stringify(['EVENT', event]));
  }

  private make(): BenchEvent {
    this.made += 1;
    const at = this.made;
    const key = at % 50 === 0 ? this.leaver : this.keys[at % AUTHORS]!;
    switch (at % 20) {
      case 1: {
        const old = this.takeDeletable();
        if (old === undefined) break;
        return this.event(old.key, { kind: 5, tags: [['e', old.id]], content: '' });
      }
      case 2:
        return this.event(key, { kind: 20_001 });
      case 3:
        return this.event(key, { kind: 0, content: JSON.stringify({ name: `${at}` }) });
      case 4:
        return this.event(key, { kind: 30_023, tags: [['d', `${at % 3}`]] });
      case 5:
        return this.event(key, { kind: 1, tags: [['expiration', `${seconds() + 20 + (at % 60)}`]] });
    }
    const post = this.event(key, { kind: 1 });
    if (key !== this.leaver) this.noteDeletable({ id: post.id, key });
    return post;
  }

  /** At random, so that no author reaches the targets that it may delete in a day. */
  private takeDeletable(): Deletable | undefined {
    const place = Math.floor(Math.random() * this.posts.length);
    const taken = this.posts[place];
    const last = this.posts.pop();
    if (last !== undefined && place < this.posts.length) this.posts[place] = last;
    return taken;
  }

  private noteDeletable(post: Deletable): void {
    if (this.posts.length < DELETABLE_MAX) this.posts.push(post);
    else this.posts[Math.floor(Math.random() * DELETABLE_MAX)] = post;
  }

  private event(key: Buffer, { kind, tags = [], content }: Draft): BenchEvent {
    const text = content ?? `${TEXT.repeat(2)}${this.made}`;
    const topic = ['t', topicOf(this.made % TOPICS)];
    return this.sign({ kind, created_at: seconds(), tags: [topic, ...tags], content: text }, key);
  }

  private subscribe(connection: Connection, number: number): void {
    const filter = { '#t': [topicOf(number % TOPICS)], limit: 20 };
    connection.send(JSON.stringify(['REQ', `reader${number}`, filter]));
  }

  /** One reader each tick asks for something else. */
  private renewReader(): void {
    const number = PUBLISHERS + (Math.floor(performance.now() / TICK_MS) % READERS);
    const connection = this.connections[number]!;
    connection.send(JSON.stringify(['CLOSE', `reader${number}`]));
    this.subscribe(connection, number);
  }

  private onFrame(frame: Buffer): void {
    if (frame[2] === 0x45 && frame[3] === 0x56) {
      this.counts.delivered += 1;
      return;
    }
    if (frame[2] !== 0x4f) return;
    const [, id, accepted, why] = JSON.parse(String(frame)) as [string, string, boolean, string];
    const at = this.sentAt.get(id);
    if (at === undefined) return;
    this.sentAt.delete(id);
    this.counts.answered += 1;
    this.counts.latenciesMs.push(performance.now() - at);
    if (accepted) return;
    this.counts.refused += 1;
    const words = why.slice(0, 50);
    this.refusals.set(words, (this.refusals.get(words) ?? 0) + 1);
  }
}

interface Deletable {
  readonly id: string;
  readonly key: Buffer;
}

interface Draft {
  readonly kind: number;
  readonly tags?: string[][];
  readonly content?: string;
}

const seconds = () => Math.floor(Date.now() / 1_000);
const newCounts = (): LoadCounts => ({ sent: 0, answered: 0, refused: 0, delivered: 0, latenciesMs: [] });
