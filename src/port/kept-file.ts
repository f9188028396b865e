/**
 * A static file in memory: it is generated once, compressed once for each encoding, and shared by all
 * answers.
 */
import { createHash } from 'node:crypto';
import { promisify } from 'node:util';
import { brotliCompress, constants, gzip } from 'node:zlib';
import { elementsOf } from './list-header.js';

/** A higher quality takes seconds and is hardly smaller. */
const BROTLI_QUALITY = 5;

const compressions = {
  br: (bytes: Buffer) =>
    promisify(brotliCompress)(bytes, { params: { [constants.BROTLI_PARAM_QUALITY]: BROTLI_QUALITY } }),
  gzip: (bytes: Buffer) => promisify(gzip)(bytes),
} as const;
type Encoding = keyof typeof compressions;
const ENCODINGS = Object.keys(compressions) as Encoding[];

export class KeptFile {
  private bytes: Promise<Buffer> | undefined;
  private readonly compressed = new Map<Encoding, Promise<Buffer>>();
  private tag: Promise<string> | undefined;

  /** `stored` are its encodings that exist already; the others are made when they are asked for. */
  constructor(
    readonly type: string,
    private readonly make: () => Promise<Buffer>,
    private readonly stored: Partial<Record<Encoding, () => Promise<Buffer>>> = {},
  ) {}

  /** A weak ETag, equal for each encoding. */
  etag(): Promise<string> {
    this.tag ??= this.whole().then(
      (bytes) => `W/"${createHash('sha256').update(bytes).digest('base64url').slice(0, 22)}"`,
    );
    return this.tag;
  }

  /** Whether this If-None-Match contains its ETag. */
  async isKnownTo(header: string | undefined): Promise<boolean> {
    if (header === undefined) return false;
    const opaque = (tag: string) => tag.trim().replace(/^W\//, '');
    const own = opaque(await this.etag());
    return elementsOf(header).some((tag) => tag.trim() === '*' || opaque(tag) === own);
  }

  async encodedFor(
    accepted: string | undefined,
  ): Promise<{ readonly encoding: Encoding | undefined; readonly bytes: Buffer }> {
    const encoding = this.type.startsWith('image/') ? undefined : preferred(accepted);
    if (encoding === undefined) return { encoding, bytes: await this.whole() };
    const made = this.compressed.get(encoding) ?? this.compress(encoding);
    this.compressed.set(encoding, made);
    return { encoding, bytes: await made };
  }

  private async compress(encoding: Encoding): Promise<Buffer> {
    return this.stored[encoding]?.() ?? compressions[encoding](await this.whole());
  }

  private whole(): Promise<Buffer> {
    this.bytes ??= this.make();
    return this.bytes;
  }
}

function preferred(accepted: string | undefined): Encoding | undefined {
  const named = elementsOf(accepted).map((each) => each.trim().toLowerCase());
  const isTaken = (encoding: Encoding) =>
    named.some((each) => {
      const [name, ...parameters] = each.split(';').map((part) => part.trim());
      return name === encoding && !parameters.some((parameter) => /^q=0(\.0*)?$/.test(parameter));
    });
  return ENCODINGS.find(isTaken);
}
