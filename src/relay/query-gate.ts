/**
 * Clients' queries under way, bounded and fair: each address has its turn, and none holds more than its share, so that heavy
 * queries of one do not stand in the way of the light ones of others. Clients on this machine are held to the whole only.
 */
import type { ClientAddress } from '../client-address.js';
import { isNoAnswer } from '../in-time.js';

const UNDER_WAY_MAX = 6;
const PER_ADDRESS_MAX = 2;

interface Turn {
  begin(): void;
  giveUp(why: unknown): void;
}

interface Line {
  readonly waiting: Turn[];
  readonly max: number;
  underWay: number;
}

export class QueryGate {
  /** In the order of their turns: the one that was served last stands last. */
  private readonly lines = new Map<string, Line>();
  private underWay = 0;

  async run<T>(client: Pick<ClientAddress, 'rateKey' | 'isLoopback'>, query: () => Promise<T>): Promise<T> {
    const { rateKey: address, isLoopback } = client;
    const line = this.lines.get(address) ?? {
      waiting: [],
      max: isLoopback ? UNDER_WAY_MAX : PER_ADDRESS_MAX,
      underWay: 0,
    };
    this.lines.set(address, line);
    await new Promise<void>((begin, giveUp) => {
      line.waiting.push({ begin, giveUp });
      this.next();
    });
    try {
      return await query();
    } catch (error) {
      if (isNoAnswer(error)) this.giveUpWaiting(error);
      throw error;
    } finally {
      this.underWay -= 1;
      line.underWay -= 1;
      if (line.underWay === 0 && line.waiting.length === 0) this.lines.delete(address);
      this.next();
    }
  }

  /** Those who wait behind a query that was not answered would each wait as long again (I15). */
  private giveUpWaiting(why: unknown): void {
    for (const [address, line] of this.lines) {
      for (const { giveUp } of line.waiting.splice(0)) giveUp(why);
      if (line.underWay === 0) this.lines.delete(address);
    }
  }

  private next(): void {
    for (const [address, line] of [...this.lines]) {
      if (this.underWay >= UNDER_WAY_MAX) return;
      if (line.waiting.length === 0 || line.underWay >= line.max) continue;
      line.underWay += 1;
      this.underWay += 1;
      this.lines.delete(address);
      this.lines.set(address, line);
      line.waiting.shift()!.begin();
    }
  }
}
