/** Frames over real websockets: every reply is well-formed, and every message gets its answers (I2). */
import { readFileSync } from 'node:fs';
import WebSocket from 'ws';
import { Dice } from '../../../src/demo/rules-dice.js';
import { nowSeconds } from '../../support/events.js';
import { makeFrame } from '../make/frames.js';
import { mutate } from '../mutate.js';
import { Broken, type Done } from '../target.js';
import { type Batch, printed, proofIn, readPrinted, renewed } from './batch.js';
import { Expected } from './expected.js';
import type { FuzzedNode } from './node.js';
import { isGenuine, problemOfReply } from './reply-grammar.js';

const BATCH = 40;
const CONNECTIONS = 4;
/** Batches of one connection, which then is closed: connections come and go. */
const BATCHES_PER_CONNECTION = 50;
const ANSWER_MS_MAX = 30_000;
const KEPT_MAX = 500;
/** One of this many served events has its signature checked here. */
const CHECKED_EVENTS = 50;
const FRAME_LENGTH_MAX = 60_000;
/** Of the frame that a failure names. */
const SHOWN_LENGTH = 500;

export async function runSockets(node: FuzzedNode, seed: string, inputs: number): Promise<Done> {
  const began = performance.now();
  const share = Math.ceil(inputs / CONNECTIONS);
  const replies = await Promise.all(
    Array.from({ length: CONNECTIONS }, (_, at) =>
      new Sender(node, new Dice(`${seed}/socket ${at}`)).run(share),
    ),
  );
  const seconds = (performance.now() - began) / 1_000;
  const all = replies.reduce((sum, count) => sum + count, 0);
  return { target: 'sockets', inputs: share * CONNECTIONS, seconds, notes: { replies: all } };
}

/** The frames of a batch on one connection, and every reply. */
export async function replaySockets(
  node: FuzzedNode,
  input: string,
  heard: (reply: string) => void,
): Promise<void> {
  await new Sender(node, new Dice('replay'), heard).replay(readPrinted(input));
}

class Sender {
  private socket: WebSocket | undefined;
  private expected = new Expected();
  private challenge: string | undefined;
  private replies = 0;
  private problem: Broken | undefined;
  private batch: Batch | undefined;
  /** Proofs that the node has accepted on this connection: later batches may need them. */
  private readonly proofs: string[] = [];
  private readonly accepted = new Set<string>();
  private isSettled: (() => void) | undefined;
  private serial = 0;
  private readonly kept = corpusFrames();

  constructor(
    private readonly node: FuzzedNode,
    private readonly dice: Dice,
    private readonly heard: (reply: string) => void = () => undefined,
  ) {}

  async run(inputs: number): Promise<number> {
    for (let done = 0, batches = 0; done < inputs; done += BATCH, batches += 1) {
      await this.sendAll(Array.from({ length: Math.min(BATCH, inputs - done) }, () => this.nextFrame()));
      if (batches % BATCHES_PER_CONNECTION === BATCHES_PER_CONNECTION - 1) this.leave();
    }
    this.leave();
    return this.replies;
  }

  async replay(batch: Batch): Promise<void> {
    // Where AUTH is optional, the node sends a challenge only to those who ask for what needs it.
    if (batch.challenge !== undefined)
      await this.sendAll([JSON.stringify(['REQ', 'challenge', { kinds: [4] }])]);
    await this.sendAll(renewed(batch, this.node.url, this.challenge));
    this.leave();
  }

  private async sendAll(frames: readonly string[]): Promise<void> {
    const socket = await this.connected();
    const { challenge, node, proofs } = this;
    this.batch = { relay: node.url, challenge, at: nowSeconds(), frames: [...proofs, ...frames] };
    this.expected = new Expected();
    this.accepted.clear();
    for (const frame of frames) {
      this.expected.sent(frame);
      socket.send(frame);
    }
    await this.settled();
    this.check();
    proofs.push(...frames.filter((frame) => this.accepted.has(proofIn(frame)?.id ?? '')));
    // So that subscriptions do not add up.
    for (let serial = this.serial - frames.length; serial <= this.serial; serial += 1)
      socket.send(JSON.stringify(['CLOSE', `s${serial}`]));
  }

  /** A failure of one frame, or of the node, has the whole batch as its input. */
  private check(): void {
    try {
      this.node.check();
      if (this.problem !== undefined) throw this.problem;
      this.expected.check();
    } catch (error) {
      if (error === this.problem) throw error;
      const why =
        error instanceof Broken ? `${error.why}: ${error.input.slice(0, SHOWN_LENGTH)}` : String(error);
      throw this.broken(why);
    }
  }

  private broken(why: string): Broken {
    return new Broken('sockets', printed(this.batch!), why);
  }

  private leave(): void {
    this.socket?.removeAllListeners('close');
    this.socket?.close();
    this.socket = undefined;
    this.challenge = undefined;
    this.proofs.length = 0;
  }

  private nextFrame(): string {
    const { dice, kept, challenge } = this;
    this.serial += 1;
    const now = Math.floor(Date.now() / 1_000);
    const context = { now, relay: this.node.url, challenge, serial: this.serial };
    const made = dice.chance(0.6) ? makeFrame(dice, context) : mutate(dice, dice.pick(kept), kept);
    if (kept.length < KEPT_MAX && dice.chance(0.05)) kept.push(made);
    // Invalid UTF-8 closes a connection; test/relay/malformed.test.ts has it.
    return made.toWellFormed().slice(0, FRAME_LENGTH_MAX).toWellFormed();
  }

  private async connected(): Promise<WebSocket> {
    if (this.socket !== undefined) return this.socket;
    const socket = new WebSocket(this.node.url);
    await new Promise((resolve, reject) => {
      socket.once('open', resolve);
      socket.once('error', reject);
    });
    socket.on('message', (data) => this.receive(String(data)));
    socket.on('error', () => undefined);
    socket.on('close', (code, reason) => this.break(`the node closed the socket: ${code} ${String(reason)}`));
    this.socket = socket;
    return socket;
  }

  private receive(text: string): void {
    this.replies += 1;
    this.heard(text);
    const problem = problemOfReply(text);
    if (problem !== undefined) {
      this.break(problem);
      return;
    }
    const frame = JSON.parse(text) as unknown[];
    if (frame[0] === 'AUTH') this.challenge = String(frame[1]);
    if (frame[0] === 'OK' && frame[2] === true) this.accepted.add(String(frame[1]));
    if (frame[0] === 'EVENT' && this.replies % CHECKED_EVENTS === 0)
      if (!isGenuine(frame[2] as Parameters<typeof isGenuine>[0])) this.break('a forged event is served');
    this.expected.received(frame);
    if (this.expected.isComplete) this.isSettled?.();
  }

  private break(why: string): void {
    this.problem ??= this.broken(why);
    this.isSettled?.();
  }

  /** Resolves when every answer has come, and when one more exchange shows that nothing else comes. */
  private async settled(): Promise<void> {
    await this.answers();
    if (this.problem !== undefined) return;
    const barrier = JSON.stringify(['REQ', `barrier${this.serial}`, { limit: 0 }]);
    this.expected.sent(barrier);
    this.socket?.send(barrier);
    await this.answers();
    this.socket?.send(JSON.stringify(['CLOSE', `barrier${this.serial}`]));
  }

  private answers(): Promise<void> {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, ANSWER_MS_MAX);
      this.isSettled = () => {
        clearTimeout(timer);
        resolve();
      };
      if (this.expected.isComplete || this.problem !== undefined) this.isSettled();
    });
  }
}

function corpusFrames(): string[] {
  const text = readFileSync(new URL('../corpus/frames.txt', import.meta.url), 'utf8');
  return text.split('\n').filter((line) => line !== '');
}
