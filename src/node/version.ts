/** The version of this program, its home page, and the Node.js versions that it runs on. */
import { createRequire } from 'node:module';

const { version, homepage, engines } = createRequire(import.meta.url)('../../package.json') as {
  version: string;
  homepage: string;
  engines: { node: string };
};

export const SOFTWARE_VERSION = version;
export const SOFTWARE_URL = homepage;
/** `^20.19.0 || ^22.12.0 || >=24.0.0`. */
export const NODE_VERSIONS = engines.node;

/**
 * package.json has two forms of ranges: one major version from a minor version on (^), or every version from
 * one on (>=).
 */
export function runsOnNode(node: string): boolean {
  const [major = 0, minor = 0] = node.split('.').map(Number);
  return NODE_VERSIONS.split(' || ').some((range) => {
    const [, sign, least = 0, leastMinor = 0] = /^(\^|>=)(\d+)\.(\d+)\.0$/.exec(range) ?? [];
    if (major !== Number(least)) return sign === '>=' && major > Number(least);
    return minor >= Number(leastMinor);
  });
}
