/**
 * The keys that this node signs with, one for each community and purpose. The secret halves are files of their own under the data
 * folder, made at first use and readable by nobody else: a dump of the database can sign nothing. They are never logged and never
 * leave this file.
 *
 * The database knows which public key is current. An instance that does not have its secret does not make another one: it says which
 * file is missing, because a new key would be another author.
 */
import { randomBytes } from 'node:crypto';
import { chmod, mkdir, open, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { type EventTemplate, finalizeEvent, getPublicKey, type VerifiedEvent } from 'nostr-tools/pure';
import type { Pool } from 'pg';
import { type Denial, isDenial } from './core/errors.js';
import type { NostrEvent } from './core/event.js';
import { currentKey, type KeyPurpose, replaceKey } from './store/node-keys.js';

export class KeyMissing extends Error {
  constructor(purpose: KeyPurpose, path: string) {
    super(
      `the secret of the ${purpose} key is not at ${path}: copy it there from where it was made, or make a new key with "minato keys rotate ${purpose}"`,
    );
  }
}

export interface NodeKeysOptions {
  /** The data folder. */
  readonly folder: string;
  readonly pool: Pool;
  readonly now: () => number;
}

export class NodeKeys {
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

  /** Whether the secret of this key can be read here, and is its own. */
  async isHere(pubkey: string): Promise<boolean> {
    return (await this.readSecret(pubkey)) !== undefined;
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
  ): Promise<string | Denial> {
    const secret = new Uint8Array(randomBytes(32));
    const pubkey = getPublicKey(secret);
    await this.write(pubkey, secret);
    const refused = await replaceKey(
      this.options.pool,
      { community, purpose, pubkey, before },
      this.options.now(),
    );
    if (refused === undefined) return pubkey;
    await rm(this.pathOf(pubkey), { force: true });
    return refused;
  }

  private async write(pubkey: string, secret: Uint8Array): Promise<void> {
    await mkdir(this.folder, { recursive: true, mode: 0o700 });
    await chmod(this.folder, 0o700);
    const file = await open(this.pathOf(pubkey), 'wx', 0o600);
    try {
      await file.writeFile(`${Buffer.from(secret).toString('hex')}\n`);
      await file.sync();
    } finally {
      await file.close();
    }
  }

  private async secretOf(purpose: KeyPurpose, pubkey: string): Promise<Uint8Array> {
    const known = this.secrets.get(pubkey);
    if (known !== undefined) return known;
    const secret = await this.readSecret(pubkey);
    if (secret === undefined) throw new KeyMissing(purpose, this.pathOf(pubkey));
    this.secrets.set(pubkey, secret);
    return secret;
  }

  private async readSecret(pubkey: string): Promise<Uint8Array | undefined> {
    const text = await readFile(this.pathOf(pubkey), 'utf8').catch(() => '');
    if (!/^[0-9a-f]{64}\s*$/.test(text)) return undefined;
    const secret = new Uint8Array(Buffer.from(text.trim(), 'hex'));
    return getPublicKey(secret) === pubkey ? secret : undefined;
  }
}
