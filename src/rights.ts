/**
 * The rights of the members who are connected to this instance, and what they have agreed to, kept fresh: when any right changes, those of all of them are
 * read again in one statement. A right that ends is known here within a second, whichever instance ended it.
 */
import type { Pool } from 'pg';
import type { Communities } from './communities.js';
import type { Log } from './log.js';
import { type MemberRights, type RightsHolder, readRights, rightsKey } from './store/subscriptions.js';

interface Held extends RightsHolder {
  uses: number;
  rights: MemberRights;
}

const NONE: MemberRights = { topics: new Set(), agreed: new Set() };

export class Rights {
  private readonly held = new Map<string, Held>();
  /** One reading after another, so that an older one never overwrites a newer. */
  private reading: Promise<unknown> = Promise.resolve();
  private seenVersion: number;
  /** Grows whenever the rights of those who are held have been read again. */
  version = 0;

  constructor(
    private readonly pool: Pool,
    private readonly communities: Communities,
    private readonly log: Log,
  ) {
    this.seenVersion = communities.rightsVersion();
    communities.afterPoll(() => this.refresh());
  }

  of(community: number, pubkey: string): MemberRights {
    return this.held.get(rightsKey({ community, pubkey }))?.rights ?? NONE;
  }

  /** Until it is released, `of` knows this member. */
  async hold(community: number, pubkey: string): Promise<void> {
    const key = rightsKey({ community, pubkey });
    const known = this.held.get(key);
    if (known !== undefined) {
      known.uses += 1;
      return this.inTurn(async () => undefined);
    }
    const held = { community, pubkey, uses: 1, rights: NONE };
    this.held.set(key, held);
    try {
      await this.inTurn(() => this.read([held]));
    } catch (error) {
      this.release(community, pubkey);
      throw error;
    }
  }

  release(community: number, pubkey: string): void {
    const key = rightsKey({ community, pubkey });
    const held = this.held.get(key);
    if (held === undefined) return;
    held.uses -= 1;
    if (held.uses === 0) this.held.delete(key);
  }

  private async refresh(): Promise<void> {
    const current = this.communities.rightsVersion();
    if (current === this.seenVersion) return;
    try {
      await this.inTurn(() => this.read([...this.held.values()]));
      this.seenVersion = current;
      this.version += 1;
    } catch (error) {
      // The next poll tries again; until then nobody has more than he had.
      this.log.warn({ error: String(error) }, 'the rights of members cannot be read');
    }
  }

  private async read(members: readonly Held[]): Promise<void> {
    const rights = await readRights(this.pool, members);
    for (const member of members) member.rights = rights.get(rightsKey(member)) ?? NONE;
  }

  private inTurn(work: () => Promise<void>): Promise<void> {
    const turn = this.reading.then(work);
    this.reading = turn.catch(() => undefined);
    return turn;
  }
}
