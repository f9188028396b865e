/** Superseded versions that a deletion also deletes, found by id or by address. Pure. */
import type { Version } from '../classify.js';
import { type DeletionTarget, isWithinWindow } from '../deletion.js';
import type { NostrEvent } from '../event.js';
import type { RowRef } from '../facts.js';

export interface Superseded extends Version {
  readonly community: number;
  readonly address: string;
  readonly pubkey: string;
  /** The topics that it was announced with. */
  readonly topics: readonly string[];
  readonly row: RowRef;
}

export class History {
  private readonly byId = new Map<string, Superseded>();
  private readonly byAddress = new Map<string, Map<string, Superseded>>();

  constructor(versions: readonly Superseded[] = []) {
    for (const version of versions) this.add(version);
  }

  add(version: Superseded): void {
    const { community, id, address } = version;
    const key = `${community}/${address}`;
    const versions = this.byAddress.get(key) ?? new Map<string, Superseded>();
    this.byAddress.set(key, versions.set(id, version));
    this.byId.set(`${community}/${id}`, version);
  }

  /** The versions that the request rightfully deletes. */
  find(community: number, request: NostrEvent, target: DeletionTarget): Superseded[] {
    return this.named(community, target).filter(
      ({ pubkey, created_at }) =>
        pubkey === request.pubkey && (target.type === 'id' || isWithinWindow(created_at, request.created_at)),
    );
  }

  /** Returns these versions and removes them from here. */
  take(community: number, request: NostrEvent, target: DeletionTarget): Superseded[] {
    const named = this.find(community, request, target);
    for (const { id, address } of named) {
      this.byId.delete(`${community}/${id}`);
      this.byAddress.get(`${community}/${address}`)?.delete(id);
    }
    return named;
  }

  private named(community: number, target: DeletionTarget): Superseded[] {
    if (target.type === 'address')
      return [...(this.byAddress.get(`${community}/${target.address}`)?.values() ?? [])];
    const version = this.byId.get(`${community}/${target.id}`);
    return version === undefined ? [] : [version];
  }
}
