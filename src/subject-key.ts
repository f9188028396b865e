/**
 * The key of the erased. What is left of one who was erased is a keyed hash of their public key: with the key events of theirs are
 * known when they come again, and a dump of the database, which does not hold it, names nobody.
 *
 * It is MINATO_ERASURE_KEY, or a file under the data folder that is made with the first erasure. The database knows a print of it. An
 * instance on another machine asks the others for it (key-sharing.ts); while it has none, it refuses to take events in rather
 * than to forget who was erased (I6).
 */
import { createHmac, randomBytes } from 'node:crypto';
import { chmod, link, mkdir, open, readdir, readFile, rm } from 'node:fs/promises';
import { join } from 'node:path';
import { setTimeout as delay } from 'node:timers/promises';
import { LRUCache } from 'lru-cache';

const KEY = /^[0-9a-f]{64}$/;
const HASHES_MAX = 20_000;
const LOOK_MS = 100;
/** The name by which instances ask for it. */
const SHARED_AS = '';

export class SubjectKeyMissing extends Error {
  constructor(
    readonly path: string,
    readonly print: string,
    isAnother = false,
  ) {
    super(
      isAnother
        ? 'MINATO_ERASURE_KEY is not the key that the erasures of this database were made with: set the right one'
        : `somebody was erased from this database, and the key that knows them is not here: copy ${path} from the machine that made it, start a node there, or set MINATO_ERASURE_KEY`,
    );
  }
}

export interface SubjectKeyOptions {
  /** The data folder. */
  readonly folder: string;
  /** MINATO_ERASURE_KEY. */
  readonly given?: string | undefined;
}

const printOf = (key: Buffer) => createHmac('sha256', key).update('minato erasure key').digest('hex');

export class SubjectKey {
  readonly path: string;
  private readonly folder: string;
  private readonly isGiven: boolean;
  private readonly hashes = new LRUCache<string, Buffer>({ max: HASHES_MAX });
  private key: Buffer | undefined;

  constructor({ folder, given }: SubjectKeyOptions) {
    this.folder = join(folder, 'keys');
    this.path = join(this.folder, 'erasure.key');
    this.isGiven = given !== undefined;
    if (given !== undefined) this.key = Buffer.from(given, 'hex');
  }

  /** What the database knows of it; undefined while there is none. */
  get print(): string | undefined {
    return this.key && printOf(this.key);
  }

  /** Reads the one of this print, or the one that is there, if it is. */
  async load(print?: string): Promise<boolean> {
    if (this.key !== undefined) return print === undefined || this.print === print;
    for (const path of await this.paths(print)) {
      const key = await readKey(path);
      if (key !== undefined && (print === undefined || printOf(key) === print)) {
        this.key = key;
        return true;
      }
    }
    return false;
  }

  /** The same, looking again and again: another instance may be on its way to hand it over. */
  async awaited(print: string, waitMs: number): Promise<boolean> {
    for (let waited = 0; waited < waitMs; waited += LOOK_MS) {
      if (await this.load(print)) return true;
      await delay(LOOK_MS);
    }
    return this.load(print);
  }

  /** Reads it, or makes it. Two that make it at once end with the same. */
  async ensure(): Promise<void> {
    if (await this.load()) return;
    await this.write(this.path, randomBytes(32));
    if (!(await this.load())) throw new Error(`${this.path} is there, and is no key: take it away`);
  }

  /** One that another machine has shared; of another print than the file that is here, beside it. False when it is not the one. */
  async adopt(key: Buffer, print: string): Promise<boolean> {
    if (printOf(key) !== print) return false;
    await this.write(this.pathOf(print), key);
    this.key = key;
    return true;
  }

  /** As others ask for it and are answered; `printNow` is what the database knows of it. */
  shared(printNow: () => string | undefined) {
    return {
      lacking: async () => {
        const print = printNow();
        // Another key that was set by hand is the operator's mistake, and an error at the start.
        return print === undefined || (await this.load(print)) || this.key !== undefined ? [] : [SHARED_AS];
      },
      secretOf: async (name: string) =>
        name === SHARED_AS && this.key !== undefined && this.print === printNow() ? this.key : undefined,
      adopt: async (name: string, secret: Buffer) => {
        const print = printNow();
        return name === SHARED_AS && print !== undefined && this.adopt(secret, print);
      },
    };
  }

  /** Is it the one that the database was used with? */
  check(print: string): void {
    if (this.print !== print) throw new SubjectKeyMissing(this.path, print, this.isGiven);
  }

  /** For another instance of the same database. */
  secret(): Buffer | undefined {
    return this.key;
  }

  /** None, while nobody was erased. */
  tryHash(community: number, pubkey: string): Buffer | undefined {
    return this.key === undefined ? undefined : this.hash(community, pubkey);
  }

  /** Of a public key in a community; or of the community itself. */
  hash(community: number, pubkey = ''): Buffer {
    const name = `${community}:${pubkey}`;
    const known = this.hashes.get(name);
    if (known !== undefined) return known;
    if (this.key === undefined) throw new SubjectKeyMissing(this.path, '');
    const hash = createHmac('sha256', this.key).update(name).digest();
    this.hashes.set(name, hash);
    return hash;
  }

  /** Where it may be: a key of a known print is recognised, whatever its file is called. */
  private async paths(print: string | undefined): Promise<string[]> {
    if (print === undefined) return [this.path];
    const names = (await readdir(this.folder).catch(() => [])).filter((name) => name.startsWith('erasure'));
    return [this.path, this.pathOf(print), ...names.map((name) => join(this.folder, name))];
  }

  private pathOf(print: string): string {
    return join(this.folder, `erasure-${print.slice(0, 16)}.key`);
  }

  /** Whole or not at all, and the first one stays: whoever comes second finds it there. */
  private async write(path: string, key: Buffer): Promise<void> {
    await mkdir(this.folder, { recursive: true, mode: 0o700 });
    await chmod(this.folder, 0o700);
    const made = `${path}.${randomBytes(6).toString('hex')}`;
    await synced(made, (file) => file.writeFile(`${key.toString('hex')}\n`));
    await link(made, path).catch((error: NodeJS.ErrnoException) => {
      if (error.code !== 'EEXIST') throw error;
    });
    await rm(made, { force: true });
    // A power cut must not lose the name of a key that marks were made with.
    const folder = await open(this.folder, 'r');
    await folder.sync().finally(() => folder.close());
  }
}

async function synced(
  path: string,
  write: (file: Awaited<ReturnType<typeof open>>) => Promise<void>,
): Promise<void> {
  const file = await open(path, 'wx', 0o600);
  try {
    await write(file);
    await file.sync();
  } finally {
    await file.close();
  }
}

async function readKey(path: string): Promise<Buffer | undefined> {
  const text = (await readFile(path, 'utf8').catch(() => '')).trim();
  return KEY.test(text) ? Buffer.from(text, 'hex') : undefined;
}
