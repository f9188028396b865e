/** Breaks a world as planned, and heals it. A fault that cannot be made here is counted as skipped. */
import { readFileSync } from 'node:fs';
import { connect, type Socket as TcpSocket } from 'node:net';
import { setTimeout as delay } from 'node:timers/promises';
import type { LinkState } from '../support/servers/link.js';
import { Socket } from './clients/socket.js';
import type { LinkFault, LinkName, PlannedFault } from './plan.js';
import { childrenOf, signal } from './world/process.js';
import type { World } from './world/world.js';

/** What takes a while. The others happen at once. */
const LASTING: Partial<Record<LinkFault, LinkState>> = {
  refuse: 'refused',
  stall: 'stalled',
  slow: 'slow',
  'lose-answers': 'answers-stalled',
};

/** A fault does not wait longer for an OK. */
const OK_MS_MAX = 3_000;
/** What a slow link holds arrives within this time after it is open again. */
const LINK_CLEARS_MS = 5_000;

export const nameOf = (fault: PlannedFault): string => {
  switch (fault.fault) {
    case 'kill':
      if (fault.times > 1) return `restart loop of ${fault.process}`;
      return `kill ${fault.process}${fault.atOk ? ' at an OK' : ''}`;
    case 'freeze':
      return `freeze ${fault.process}`;
    case 'link':
      return `${fault.how} ${fault.link}`;
    case 'clock':
      return `clock of ${fault.node} ${fault.seconds > 0 ? 'forward' : 'back'}`;
    case 'client':
      return `${fault.how} client`;
    case 'lost-lease':
      return `lost lease of ${fault.process}`;
    case 'disk-full':
      return 'disk full';
    case 'endpoint':
      return `${fault.how} endpoint of ${fault.of}`;
  }
};

export class Faults {
  private readonly idle: { destroy(): void }[] = [];
  /** The furthest that a clock was ahead, in seconds. */
  aheadMax = 0;
  /** Clocks that are wrong now. */
  private wrongClocks = 0;
  /** Those who wait for the next OK. */
  private readonly atOk: (() => void)[] = [];
  /** When each link was last broken. */
  private readonly brokenUntil = new Map<LinkName, number>();
  readonly made = new Map<string, number>();
  readonly skipped = new Map<string, number>();

  constructor(private readonly world: World) {}

  get clocksAreRight(): boolean {
    return this.wrongClocks === 0;
  }

  /** A client has got an OK for an event. */
  noteOk(): void {
    for (const resolve of this.atOk.splice(0)) resolve();
  }

  private nextOk(): Promise<void> {
    return Promise.race([new Promise<void>((resolve) => this.atOk.push(resolve)), delay(OK_MS_MAX)]);
  }

  /** Nothing has delayed what passes this link, for the time that a slow link needs to become empty. */
  isClear(link: LinkName): boolean {
    return Date.now() - (this.brokenUntil.get(link) ?? 0) > LINK_CLEARS_MS;
  }

  /** Resolves when the fault is over; what it has broken may take longer to recover. */
  async make(fault: PlannedFault): Promise<void> {
    await delay(fault.atMs);
    const isPossible = await this.makeOne(fault);
    const counts = isPossible ? this.made : this.skipped;
    counts.set(nameOf(fault), (counts.get(nameOf(fault)) ?? 0) + 1);
  }

  /**
   * Slow and dead clients stay until the end of the round, longer than the fault. Clients whose connection is
   * half open connect again then; the node has to notice that by itself.
   */
  dismissClients(): void {
    for (const name of ['clients-a', 'clients-b', 'clients-peer'] as const)
      this.world.links[name].tellDeserted();
    for (const one of this.idle.splice(0)) one.destroy();
  }

  private async makeOne(fault: PlannedFault): Promise<boolean> {
    const { processes, clocks, disk } = this.world;
    switch (fault.fault) {
      case 'kill': {
        for (let time = 0; time < fault.times; time += 1) {
          if (fault.atOk) await this.nextOk();
          await processes[fault.process].kill();
          await delay(fault.forMs);
          processes[fault.process].launch();
        }
        return true;
      }
      case 'freeze':
      case 'lost-lease': {
        processes[fault.process].freeze();
        await delay(fault.forMs);
        processes[fault.process].thaw();
        return true;
      }
      case 'link':
        await this.breakLink(fault.link, fault.how, fault.forMs);
        return true;
      case 'disk-full': {
        if (!disk.isSmall) return false;
        await disk.fill();
        await delay(fault.forMs);
        await disk.free();
        return true;
      }
      case 'clock': {
        const clock = clocks[fault.node];
        if (!clock.canJump) return false;
        this.aheadMax = Math.max(this.aheadMax, fault.seconds);
        this.wrongClocks += 1;
        clock.jump(fault.seconds);
        await delay(fault.forMs);
        clock.jump(0);
        // The library reads its file once a second.
        await delay(2_000);
        this.wrongClocks -= 1;
        return true;
      }
      case 'endpoint':
        return this.breakEndpoint(fault.of, fault.how, fault.forMs);
      case 'client':
        this.idle.push(
          await (fault.how === 'slow' ? this.slowClient(fault.instance) : this.deadClient(fault.instance)),
        );
        return true;
    }
  }

  private async breakLink(name: LinkName, how: LinkFault, forMs: number): Promise<void> {
    this.brokenUntil.set(name, Number.POSITIVE_INFINITY);
    await this.breakOpenLink(name, how, forMs);
    this.brokenUntil.set(name, Date.now());
  }

  private async breakOpenLink(name: LinkName, how: LinkFault, forMs: number): Promise<void> {
    const link = this.world.links[name];
    if (how === 'cut') return link.cut();
    if (how === 'half-open') return link.desert();
    link.become(LASTING[how]!);
    await delay(forMs);
    if (how === 'lose-answers') link.cut();
    link.become('open');
  }

  /** False: it has no endpoint at this moment. */
  private async breakEndpoint(of: 'node' | 'peer', how: 'kill' | 'freeze', forMs: number): Promise<boolean> {
    const { processes } = this.world;
    const owners = of === 'peer' ? [processes.peer] : [processes.b, processes.worker];
    const pids = owners.flatMap((one) => (one.isAlive ? childrenOf(one.pid!) : [])).filter(isEndpoint);
    for (const pid of pids) signal(pid, how === 'kill' ? 'SIGKILL' : 'SIGSTOP');
    if (how === 'kill') return pids.length > 0;
    await delay(forMs);
    for (const pid of pids) signal(pid, 'SIGCONT');
    return pids.length > 0;
  }

  /** Asks for everything, many times, and reads nothing. */
  private async slowClient(instance: number): Promise<{ destroy(): void }> {
    const quiet = { onFrame: () => undefined, onClose: () => undefined };
    const socket = await Socket.open(this.world.port(instance), '/', quiet).catch(() => undefined);
    socket?.pause();
    for (let at = 0; at < 20; at += 1) socket?.send(['REQ', `slow${at}`, { limit: 5_000 }]);
    return { destroy: () => socket?.cut() };
  }

  /** Half a handshake, half a body: it sends no more and does not close. */
  private async deadClient(instance: number): Promise<TcpSocket> {
    const socket = connect(this.world.port(instance), '127.0.0.1');
    socket.on('error', () => undefined);
    socket.write(
      'POST /v1/topic-subscription-requests HTTP/1.1\r\nhost: x\r\ncontent-length: 100\r\n\r\n{"top',
    );
    return socket;
  }
}

function isEndpoint(pid: number): boolean {
  try {
    return readFileSync(`/proc/${pid}/cmdline`, 'utf8').includes('endpoint-process');
  } catch {
    return false;
  }
}
