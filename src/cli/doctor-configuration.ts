/** The part of `minato doctor` about the environment variables and the data folder. */
import { constants } from 'node:fs';
import { access, stat } from 'node:fs/promises';
import { dirname, resolve } from 'node:path';
import { NODE_DEFAULTS } from '../communities/rules-node-settings.js';
import { type Finding, fail, info, ok, warn } from '../health/finding.js';
import { type Config, unknownVariables } from '../node/config.js';
import { readDisk } from '../node/disk.js';
import { DISK_UNKNOWN } from '../node/rules-disk.js';
import { errorCode } from '../postgres/rules-error-code.js';
import { DISK_ADVICE } from './doctor-capacity.js';
import { bytesText } from './progress.js';

export function* checkEnvironment(config: Config): Generator<Finding> {
  yield ok('environment variables are valid');
  const unknown = unknownVariables(process.env);
  if (unknown.length > 0) {
    yield warn(
      `unknown environment variables: ${unknown.join(', ')}`,
      'Are they misspelt? They have no effect.',
    );
  }
  if (config.publicUrl === undefined) {
    yield info(
      'MINATO_PUBLIC_URL is not set',
      'Set it to the address that clients use once the relay is public.',
    );
  }
  if (config.adminPubkeys.length === 0) {
    yield info('MINATO_ADMIN_PUBKEYS is not set', 'Set it to the public keys of the operators, hex or npub.');
  }
}

export async function* checkDataFolder(dataDir: string, holder: number | undefined): AsyncGenerator<Finding> {
  const folder = await nearestExisting(resolve(dataDir));
  const exists = folder === resolve(dataDir);
  const writable = await access(folder, constants.W_OK | constants.X_OK).then(
    () => true,
    () => false,
  );
  if (!writable) {
    const advice = 'Allow this user to write there, or set MINATO_DATA_DIR to another folder.';
    yield fail(`${folder} cannot be written`, advice);
  } else
    yield ok(
      exists ? `data folder ${dataDir}` : `data folder ${dataDir} does not exist yet; serve creates it`,
    );
  const { freeBytes = 0, totalBytes = 0, level } = await readDisk(folder, NODE_DEFAULTS, DISK_UNKNOWN);
  const share = totalBytes === 0 ? 1 : freeBytes / totalBytes;
  const text = `${bytesText(freeBytes)} free on the disk of the data folder (${Math.floor(share * 100)} %)`;
  if (level === 0) yield ok(text);
  else yield warn(text, DISK_ADVICE);
  if (holder !== undefined) yield ok(`the data folder is in use by process ${holder}`);
  else if (exists) yield info('no node is running on the data folder');
}

async function nearestExisting(folder: string): Promise<string> {
  for (let at = folder; ; at = dirname(at)) {
    if (at === dirname(at) || (await exists(at))) return at;
  }
}

export async function exists(path: string): Promise<boolean> {
  try {
    await stat(path);
    return true;
  } catch (error) {
    if (['ENOENT', 'ENOTDIR'].includes(errorCode(error) ?? '')) return false;
    throw error;
  }
}
