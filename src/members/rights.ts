/**
 * Caches the rights and consents of the members who are connected to this instance. When any right changes,
 * the rights of all of them are read again in one statement. So this instance knows within a second of a
 * right that ended, whichever instance ended it.
 */
import type { Pool } from 'pg';
import type { Communities } from '../communities/communities.js';
import { isSameSet } from '../events/rules/access.js';
import type { Log } from '../node/log.js';
import { type MemberRights, type RightsHolder, readRights, rightsKey } from '../topics/subscriptions.sql.js';

interface Held extends RightsHolder {
  uses: number;
  rights: MemberRights;
  isRead: boolean;
}

const NONE: MemberRights = { topics: new Set(), agreed: new Set() };

export class Rights {
  private readonly held = new Map<string, Held>();
  /** Reads run one after another, so that an older result never overwrites a newer one. */
  private reading: Promise<unknown> = Promise.resolve();
  private next: Promise<void> | undefined;
  private seenVersion: number;
  /** Grows whenever the rights of a held member have changed. */
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

  /** `of` knows this member until `release`. Members that connect at the same time are read together. */
  async hold(community: number, pubkey: string): Promise<void> {
    const key = rightsKey({ community, pubkey });
    const held = this.held.get(key) ?? { community, pubkey, uses: 0, rights: NONE, isRead: false };
    this.held.set(key, held);
    held.uses += 1;
    try {
      if (!held.isRead) await this.readSoon();
    } catch (error) {
      this.release(community, pubkey);
      throw error;
    }
  }

  /** Reads everyone who was not read yet, after the current read has finished. */
  private readSoon(): Promise<void> {
    if (this.next === undefined) {
      this.next = this.reading.then(async () => {
        this.next = undefined;
        await this.read([...this.held.values()].filter(({ isRead }) => !isRead));
      });
      this.reading = this.next.catch(() => undefined);
    }
    return this.next;
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
    const all = this.reading.then(() => this.read([...this.held.values()]));
    this.reading = all.catch(() => undefined);
    try {
      await all;
      this.seenVersion = current;
    } catch (error) {
      // The next poll tries again. Until then nobody gets more rights than before.
      this.log.warn({ error: String(error) }, 'cannot read the rights of members');
    }
  }

  private async read(members: readonly Held[]): Promise<void> {
    const rights = await readRights(this.pool, members);
    let changed = false;
    for (const member of members) {
      const found = rights.get(rightsKey(member)) ?? NONE;
      const isSame = isSameRights(member.rights, found);
      changed ||= member.isRead && !isSame;
      if (!isSame) member.rights = found;
      member.isRead = true;
    }
    if (changed) this.version += 1;
  }
}

function isSameRights(one: MemberRights, other: MemberRights): boolean {
  return isSameSet(one.topics, other.topics) && isSameSet(one.agreed, other.agreed);
}
