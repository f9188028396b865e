/**
 * The attacker, a separate process. It prepares one flood and runs it against a port, the node's or the
 * sink's, until it is stopped. It sends at the flood's pace and no faster. It skips a socket whose buffer is
 * full, and opens a closed or refused socket again, as an attacker would. Against the sink it repeats the
 * messages that the node accepted, at the same times, so both floods are equal.
 */
import { connect, type Socket } from 'node:net';
import { openSigner } from '../sign.js';
import { type Answer, type Command, PACE_MS, type Sent } from './attacker-commands.js';
import {
  type Attacking,
  type Flood,
  handshake,
  isAccepted,
  isPing,
  PONG,
  socketsOf,
  type Volley,
} from './flood.js';
import { FLOODS } from './floods.js';

const TICK_MS = 5;
/** Messages that could not be sent are dropped, except for those of a short pause of this process. */
const CATCH_UP_SECONDS = 0.1;
/** A socket with more unsent bytes is skipped. */
const UNSENT_BYTES_MAX = 262_144;
const OPENING_MAX = 100;
const REOPEN_MS = 200;
const REOPENED_PER_SECOND = 300;

class Slot implements Attacking {
  socket: Socket | undefined;
  isOpen = false;
  challenge = '0'.repeat(32);
  sent = 0;
  /** When it may be opened again. */
  waitsUntilMs = 0;
  wasOpened = false;

  constructor(
    readonly number: number,
    readonly address: string,
  ) {}
}

class Attack {
  readonly #slots: Slot[];
  readonly #startMs = performance.now();
  #timer: NodeJS.Timeout;
  #lastMs = this.#startMs;
  #due = 0;
  /** The next step of the given pace. */
  #given = 0;
  #reopenDue = 0;
  #messageIndex = 0;
  #next = 0;
  #opening = 0;
  #sent = { messages: 0, bytes: 0, opened: 0, closed: 0, refused: 0 };
  /** Messages in each step of time. */
  readonly #pace: number[] = [];

  constructor(
    private readonly flood: Flood,
    private readonly volley: Volley,
    private readonly port: number,
    addresses: readonly string[],
    socketsMax: number,
    private readonly given: readonly number[] | undefined,
  ) {
    const count = socketsOf(flood, socketsMax);
    this.#slots = Array.from(
      { length: count },
      (_, number) => new Slot(number, addresses[number % addresses.length]!),
    );
    this.#timer = setInterval(() => this.#tick(), TICK_MS);
  }

  stop(): Sent {
    clearInterval(this.#timer);
    for (const slot of this.#slots) slot.socket?.destroy();
    const pace = Array.from(this.#pace, (messages) => messages ?? 0);
    return { ...this.#sent, pace, seconds: (performance.now() - this.#startMs) / 1_000 };
  }

  /** Whether every socket has been opened or refused once. */
  get isUnderWay(): boolean {
    return this.#slots.every((slot) => slot.wasOpened);
  }

  #tick(): void {
    const nowMs = performance.now();
    const seconds = (nowMs - this.#lastMs) / 1_000;
    this.#lastMs = nowMs;
    this.#openSome(nowMs, seconds);
    const { perSecond } = this.flood;
    const step = Math.floor((nowMs - this.#startMs) / PACE_MS);
    this.#due =
      this.given === undefined
        ? Math.min(this.#due + perSecond * seconds, Math.max(1, perSecond * CATCH_UP_SECONDS))
        : this.#due + this.#newlyGiven(step);
    while (this.#due >= 1 && this.#sendOne()) {
      this.#due -= 1;
      this.#pace[step] = (this.#pace[step] ?? 0) + 1;
    }
  }

  /** Messages of the given pace for the steps that began since the last tick. */
  #newlyGiven(step: number): number {
    let messages = 0;
    for (; this.#given <= step; this.#given++) messages += this.given![this.#given] ?? 0;
    return messages;
  }

  /** Sends to the next socket with a free buffer. False when there is none. */
  #sendOne(): boolean {
    for (let tried = 0; tried < this.#slots.length; tried++) {
      const slot = this.#slots[this.#next++ % this.#slots.length]!;
      if (!slot.isOpen || slot.socket!.writableLength > UNSENT_BYTES_MAX) continue;
      this.#write(slot, this.volley.next(this.#messageIndex++, slot));
      slot.sent += 1;
      return true;
    }
    return false;
  }

  #write(slot: Slot, bytes: Buffer): void {
    if (bytes.length === 0) return;
    slot.socket!.write(bytes);
    this.#sent.messages += 1;
    this.#sent.bytes += bytes.length;
  }

  #openSome(nowMs: number, seconds: number): void {
    this.#reopenDue = Math.min(REOPENED_PER_SECOND, this.#reopenDue + REOPENED_PER_SECOND * seconds);
    for (const slot of this.#slots) {
      if (this.#opening >= OPENING_MAX) return;
      if (slot.socket !== undefined || slot.waitsUntilMs > nowMs) continue;
      if (slot.wasOpened && --this.#reopenDue < 0) return;
      this.#open(slot);
    }
  }

  #open(slot: Slot): void {
    const socket = connect({ port: this.port, host: '127.0.0.1', noDelay: true });
    this.#opening += 1;
    slot.socket = socket;
    slot.sent = 0;
    let opening = true;
    const settled = (): void => {
      if (opening) this.#opening -= 1;
      opening = false;
      slot.wasOpened = true;
    };
    const begin = (): void => {
      settled();
      slot.isOpen = true;
      this.#sent.opened += 1;
      if (this.volley.first !== undefined) this.#write(slot, this.volley.first(slot));
      if (this.flood.unread) socket.pause();
    };
    socket.once('connect', () => (this.flood.http ? begin() : socket.write(handshake(slot.address))));
    socket.on('data', (data) => {
      if (slot.isOpen) return this.#receive(slot, data);
      if (!isAccepted(data)) return void socket.destroy();
      readChallenge(slot, data);
      begin();
    });
    socket.on('error', () => undefined);
    socket.on('close', () => {
      if (slot.isOpen) this.#sent.closed += 1;
      else this.#sent.refused += 1;
      settled();
      slot.isOpen = false;
      slot.socket = undefined;
      slot.waitsUntilMs = performance.now() + REOPEN_MS;
    });
  }

  /** Answers pings, because the node closes a socket that does not. */
  #receive(slot: Slot, data: Buffer): void {
    if (this.flood.http) return;
    if (isPing(data)) this.#write(slot, PONG);
    else readChallenge(slot, data);
  }
}

function readChallenge(slot: Slot, data: Buffer): void {
  const start = data.indexOf('["AUTH","');
  if (start !== -1) slot.challenge = data.toString('latin1', start + 9, data.indexOf('"', start + 9));
}

let ready: { readonly flood: Flood; readonly volley: Volley; readonly socketsMax: number } | undefined;
let attack: Attack | undefined;

async function runCommand(command: Command): Promise<Sent | undefined> {
  if (command.do === 'stop') return attack!.stop();
  if (command.do === 'start') {
    const { flood, volley, socketsMax } = ready!;
    attack = new Attack(flood, volley, command.port, command.addresses, socketsMax, command.pace);
    while (!attack.isUnderWay) await new Promise((resolve) => setTimeout(resolve, TICK_MS));
    return undefined;
  }
  const flood = FLOODS.find(({ name }) => name === command.flood)!;
  const { socketsMax } = command;
  ready = { flood, socketsMax, volley: flood.prepare({ ...command, sign: await openSigner() }) };
  return undefined;
}

process.on('message', (command: Command) => {
  void runCommand(command).then((answer) => process.send!({ to: command.do, answer } satisfies Answer));
});
process.on('disconnect', () => process.exit());
process.send!({ to: 'begin' } satisfies Answer);
