/**
 * The keys that this node signs with, one for each community and purpose. Each secret is a file under the
 * data folder, made at first use and readable by its owner only, so a dump of the database can sign nothing.
 * Secrets are never logged.
 *
 * The database knows which public key is current. An instance without its secret requests it from the other
 * instances (sharing.ts). When none answers, it does not make another key, because a new key would be another
 * author. It reports which file is missing. Only the key of certificates is replaced then (`ready`), so that
 * an erasure can finish.
 */
import { randomBytes } from 'node:crypto';
import { open, readdir, readFile, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { type EventTemplate, getPublicKey } from 'nostr-tools/pure';
import type { Pool } from 'pg';
import { type Denial, isDenial } from '../api/rules-errors.js';
import { isHex64, type NostrEvent } from '../events/rules/event.js';
import { giveToOwner, ownFolder } from '../postgres/owned-file.js';
import { currentKey, currentKeys, type KeyPurpose, replaceKey } from './keys.sql.js';
import { signEvent } from './sign.js';

export class KeyMissing extends Error {
  constructor(purpose: KeyPurpose, path: string) {
    super(
      `the secret of the ${purpose} key is not at ${path}, and no machine that has it responds: ` +
        `start one of them, copy the file there, or make a new key with "minato keys rotate ${purpose}"`,
    );
  }
}

export interface NodeKeysOptions {
  /** The data folder. */
  readonly folder: string;
  readonly pool: Pool;
  readonly now: () => number;
  /**
   * This instance signs. It requests every current key early, before the machine that made it may be lost.
   */
  readonly signs?: boolean;
}

/** Limit of the missing keys that are requested because something was to be signed with them. */
const WANTED_MAX = 100;
const LOOK_MS = 100;
const CURRENT_MS = 10_000;
const REPLACE_TRIES_MAX = 3;

export class NodeKeys {
  /** Keys that were needed for a signature and have no secret here. */
  private readonly wanted = new Set<string>();
  private readonly here = new Set<string>();
  private current: readonly string[] = [];
  /** By a clock that does not jump. */
  private nextLook = 0;
  private readonly secrets = new Map<string, Uint8Array>();
  private readonly folder: string;

  constructor(private readonly options: NodeKeysOptions) {
    this.folder = join(options.folder, 'keys');
  }

  /** The current public key; made if there is none yet. */
  async pubkey(community: number, purpose: KeyPurpose): Promise<string> {
    const known = await currentKey(this.options.pool, community, purpose);
    return known ?? (await this.make(community, purpose));
  }

  /** Signs with the current key of the purpose. */
  async sign(community: number, purpose: KeyPurpose, template: EventTemplate): Promise<NostrEvent> {
    return this.signAs(await this.pubkey(community, purpose), purpose, template);
  }

  /** Signs with a key that may be retired: only the key that signed something can retract it. */
  async signAs(pubkey: string, purpose: KeyPurpose, template: EventTemplate): Promise<NostrEvent> {
    return signEvent(template, await this.secretOf(purpose, pubkey), pubkey);
  }

  /** Replaces the current key, which is kept as retired. Returns the new public key. */
  async rotate(community: number, purpose: KeyPurpose): Promise<string | Denial> {
    const before = await currentKey(this.options.pool, community, purpose);
    return this.replace(community, purpose, before);
  }

  /**
   * The current key, with its secret on this machine. Waits for other instances to share it. If none does in
   * time, this machine makes a new key that replaces it, and calls `onReplaced`.
   */
  async ready(
    community: number,
    purpose: KeyPurpose,
    waitMs: number,
    onReplaced: (before: string, pubkey: string) => void,
  ): Promise<string> {
    for (let tries = 0; tries < REPLACE_TRIES_MAX; tries += 1) {
      const before = await this.pubkey(community, purpose);
      if (await this.awaited(before, waitMs)) return before;
      const made = await this.replace(community, purpose, before, 'no machine that answered had its secret');
      if (isDenial(made)) continue;
      onReplaced(before, made);
      return made;
    }
    throw new Error(`other instances are replacing the ${purpose} key: try again`);
  }

  /** Polls for the file: another instance may be about to share the key. */
  private async awaited(pubkey: string, waitMs: number): Promise<boolean> {
    for (let waited = 0; waited < waitMs; waited += LOOK_MS) {
      if (await this.isHere(pubkey)) return true;
      this.want(pubkey);
      await delay(LOOK_MS);
    }
    return this.isHere(pubkey);
  }

  private want(pubkey: string): void {
    if (this.wanted.size < WANTED_MAX) this.wanted.add(pubkey);
  }

  /** These keys for sharing between instances; the name of a key is its public half. */
  shared() {
    return {
      lacking: () => this.lacking(),
      secretOf: async (name: string) => {
        const secret = isHex64(name) ? await this.readSecret(name) : undefined;
        return secret && Buffer.from(secret);
      },
      adopt: async (pubkey: string, secret: Buffer) => {
        if (!isSecretOf(secret, pubkey)) return false;
        await this.write(pubkey, secret);
        this.wanted.delete(pubkey);
        return this.isHere(pubkey);
      },
    };
  }

  private async lacking(): Promise<readonly string[]> {
    const { pool, signs = false } = this.options;
    if (signs && performance.now() >= this.nextLook) {
      this.current = await currentKeys(pool);
      this.nextLook = performance.now() + CURRENT_MS;
    }
    const names = new Set([...this.wanted, ...this.current]);
    for (const name of names) {
      if (!this.here.has(name) && (await this.isHere(name))) this.here.add(name);
      if (this.here.has(name)) names.delete(name);
    }
    return [...names];
  }

  /** Whether this machine can read the secret, and it belongs to the key. */
  async isHere(pubkey: string): Promise<boolean> {
    return (await this.readSecret(pubkey)) !== undefined;
  }

  /** The public keys that have a secret file on this machine. */
  async files(): Promise<string[]> {
    const names = await readdir(this.folder).catch(() => []);
    return names.flatMap((name) => /^([0-9a-f]{64})\.key$/.exec(name)?.[1] ?? []);
  }

  pathOf(pubkey: string): string {
    return join(this.folder, `${pubkey}.key`);
  }

  /** When another instance was faster, returns its key. */
  private async make(community: number, purpose: KeyPurpose): Promise<string> {
    const made = await this.replace(community, purpose, undefined);
    if (!isDenial(made)) return made;
    return (await currentKey(this.options.pool, community, purpose))!;
  }

  /** Writes the file first: a key in the database always has its secret. */
  private async replace(
    community: number,
    purpose: KeyPurpose,
    before: string | undefined,
    reason?: string,
  ): Promise<string | Denial> {
    const secret = new Uint8Array(randomBytes(32));
    const pubkey = getPublicKey(secret);
    await this.write(pubkey, secret);
    const refused = await replaceKey(
      this.options.pool,
      { community, purpose, pubkey, before, reason },
      this.options.now(),
    );
    if (refused === undefined) return pubkey;
    await rm(this.pathOf(pubkey), { force: true });
    return refused;
  }

  /** Writes the whole file or nothing. */
  private async write(pubkey: string, secret: Uint8Array): Promise<void> {
    await ownFolder(this.options.folder, this.folder);
    const made = `${this.pathOf(pubkey)}.${randomBytes(6).toString('hex')}`;
    const file = await open(made, 'wx', 0o600);
    try {
      await file.writeFile(`${Buffer.from(secret).toString('hex')}\n`);
      await file.sync();
    } finally {
      await file.close();
    }
    await giveToOwner(this.options.folder, made);
    await rename(made, this.pathOf(pubkey));
  }

  private async secretOf(purpose: KeyPurpose, pubkey: string): Promise<Uint8Array> {
    const known = this.secrets.get(pubkey);
    if (known !== undefined) return known;
    const secret = await this.readSecret(pubkey);
    if (secret === undefined) {
      this.want(pubkey);
      throw new KeyMissing(purpose, this.pathOf(pubkey));
    }
    this.secrets.set(pubkey, secret);
    return secret;
  }

  private async readSecret(pubkey: string): Promise<Uint8Array | undefined> {
    const text = await readFile(this.pathOf(pubkey), 'utf8').catch(() => '');
    if (!/^[0-9a-f]{64}\s*$/.test(text)) return undefined;
    const secret = Buffer.from(text.trim(), 'hex');
    return isSecretOf(secret, pubkey) ? new Uint8Array(secret) : undefined;
  }
}

/** Not every 32 bytes are a valid secret key. */
function isSecretOf(secret: Buffer, pubkey: string): boolean {
  try {
    return getPublicKey(new Uint8Array(secret)) === pubkey;
  } catch {
    return false;
  }
}
