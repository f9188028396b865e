/**
 * The keys that this node signs with, one for each community and purpose. The secret halves are files of their own under the data
 * folder, made at first use and readable by nobody else: a dump of the database can sign nothing. They are never logged and never
 * leave this file.
 *
 * The database knows which public key is current. An instance that does not have its secret asks the others for it (key-sharing.ts).
 * Where nobody answers it does not make another one: it says which file is missing, because a new key would be another author. Only
 * the key of certificates is replaced then (`current`), so that an erasure comes to its end.
 */
import { randomBytes } from 'node:crypto';
import { chmod, mkdir, open, readdir, readFile, rename, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { type EventTemplate, finalizeEvent, getPublicKey, type VerifiedEvent } from 'nostr-tools/pure';
import type { Pool } from 'pg';
import { type Denial, isDenial } from './core/errors.js';
import { isHex64, type NostrEvent } from './core/event.js';
import { currentKey, currentKeys, type KeyPurpose, replaceKey } from './store/node-keys.js';

export class KeyMissing extends Error {
  constructor(purpose: KeyPurpose, path: string) {
    super(
      `the secret of the ${purpose} key is not at ${path}, and no machine that has it answers: start one of them, copy the file there, or make a new key with "minato keys rotate ${purpose}"`,
    );
  }
}

export interface NodeKeysOptions {
  /** The data folder. */
  readonly folder: string;
  readonly pool: Pool;
  readonly now: () => number;
  /** This instance signs by itself: it asks for every current key, before the machine that made it is gone. */
  readonly signs?: boolean;
}

/** Keys that are asked for at the same time because something was to be signed with them. */
const WANTED_MAX = 100;
const LOOK_MS = 100;
const CURRENT_MS = 10_000;
const REPLACE_TRIES_MAX = 3;

export class NodeKeys {
  /** Those that something was to be signed with, and that are not here. */
  private readonly wanted = new Set<string>();
  private readonly here = new Set<string>();
  private current: readonly string[] = [];
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

  /** Signs as the current key of the purpose. */
  async sign(community: number, purpose: KeyPurpose, template: EventTemplate): Promise<NostrEvent> {
    return this.signAs(await this.pubkey(community, purpose), purpose, template);
  }

  /** As a key of this purpose that may be retired: only the one that signed something can take it back. */
  async signAs(pubkey: string, purpose: KeyPurpose, template: EventTemplate): Promise<NostrEvent> {
    const { id, sig, kind, tags, content, created_at }: VerifiedEvent = finalizeEvent(
      template,
      await this.secretOf(purpose, pubkey),
    );
    return { id, pubkey, created_at, kind, tags, content, sig };
  }

  /** Another key takes the place of the current one, which is kept as retired. Gives the new public key. */
  async rotate(community: number, purpose: KeyPurpose): Promise<string | Denial> {
    const before = await currentKey(this.options.pool, community, purpose);
    return this.replace(community, purpose, before);
  }

  /**
   * The current key with its secret here. Others are asked for it and waited for; where none answers in time, this machine makes one
   * that takes its place, and `onReplaced` learns of it.
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
    throw new Error(`the ${purpose} key is being replaced by others; try again`);
  }

  /** Looks again and again: another instance may be about to share it. */
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

  /** As others ask for them and are answered; a key is named by its public half. */
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
    const { pool, now, signs = false } = this.options;
    if (signs && now() >= this.nextLook) {
      this.current = await currentKeys(pool);
      this.nextLook = now() + CURRENT_MS;
    }
    const names = new Set([...this.wanted, ...this.current]);
    for (const name of names) {
      if (!this.here.has(name) && (await this.isHere(name))) this.here.add(name);
      if (this.here.has(name)) names.delete(name);
    }
    return [...names];
  }

  /** Whether the secret of this key can be read here, and is its own. */
  async isHere(pubkey: string): Promise<boolean> {
    return (await this.readSecret(pubkey)) !== undefined;
  }

  /** The public keys whose secrets have a file here. */
  async files(): Promise<string[]> {
    const names = await readdir(this.folder).catch(() => []);
    return names.flatMap((name) => /^([0-9a-f]{64})\.key$/.exec(name)?.[1] ?? []);
  }

  /** Where the secret of a public key is. */
  pathOf(pubkey: string): string {
    return join(this.folder, `${pubkey}.key`);
  }

  /** When another instance was faster, its key is the one. */
  private async make(community: number, purpose: KeyPurpose): Promise<string> {
    const made = await this.replace(community, purpose, undefined);
    if (!isDenial(made)) return made;
    return (await currentKey(this.options.pool, community, purpose))!;
  }

  /** The file first: a key that the database names is never without its secret. */
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

  /** Whole or not at all. */
  private async write(pubkey: string, secret: Uint8Array): Promise<void> {
    await mkdir(this.folder, { recursive: true, mode: 0o700 });
    await chmod(this.folder, 0o700);
    const made = `${this.pathOf(pubkey)}.${randomBytes(6).toString('hex')}`;
    const file = await open(made, 'wx', 0o600);
    try {
      await file.writeFile(`${Buffer.from(secret).toString('hex')}\n`);
      await file.sync();
    } finally {
      await file.close();
    }
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

/** Not every 32 bytes are a secret key at all. */
function isSecretOf(secret: Buffer, pubkey: string): boolean {
  try {
    return getPublicKey(new Uint8Array(secret)) === pubkey;
  } catch {
    return false;
  }
}
