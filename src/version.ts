/** The version of this program, and where it is at home. */
import { createRequire } from 'node:module';

const { version, homepage } = createRequire(import.meta.url)('../package.json') as {
  version: string;
  homepage: string;
};

export const SOFTWARE_VERSION = version;
export const SOFTWARE_URL = homepage;
