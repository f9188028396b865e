/**
 * The key of this machine for gossip: a file under the data folder, made at first use. It is never shared
 * with other machines, because a peer finds a machine by it.
 */
import { createPrivateKey, createPublicKey, randomBytes } from 'node:crypto';
import { open, readFile, rename } from 'node:fs/promises';
import { join } from 'node:path';
import { giveToOwner, ownFolder } from '../postgres/owned-file.js';

export interface MachineKey {
  /** 32 bytes in hex. */
  readonly secret: string;
  /** The public half in hex: the id of this machine. */
  readonly id: string;
}

/** The header of an Ed25519 private key in PKCS #8; the 32 bytes follow. */
const PKCS8 = '302e020100300506032b657004220420';

export async function machineKey(dataDir: string): Promise<MachineKey> {
  const folder = join(dataDir, 'keys');
  const path = join(folder, 'gossip');
  const known = await readSecret(path);
  if (known !== undefined) return { secret: known, id: idOf(known) };
  await ownFolder(dataDir, folder);
  const made = `${path}.${randomBytes(6).toString('hex')}`;
  const file = await open(made, 'wx', 0o600);
  try {
    await file.writeFile(`${randomBytes(32).toString('hex')}\n`);
    await file.sync();
  } finally {
    await file.close();
  }
  await giveToOwner(dataDir, made);
  await rename(made, path);
  const secret = await readSecret(path);
  if (secret === undefined) throw new Error(`the key of this machine cannot be read at ${path}`);
  return { secret, id: idOf(secret) };
}

async function readSecret(path: string): Promise<string | undefined> {
  const text = (await readFile(path, 'utf8').catch(() => '')).trim();
  return /^[0-9a-f]{64}$/.test(text) ? text : undefined;
}

function idOf(secret: string): string {
  const key = createPrivateKey({ key: Buffer.from(PKCS8 + secret, 'hex'), format: 'der', type: 'pkcs8' });
  return createPublicKey(key).export({ format: 'der', type: 'spki' }).subarray(-32).toString('hex');
}
