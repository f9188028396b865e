/**
 * Where the port of a node is, read from two environment variables alone. A restart is short for clients only
 * if the port is open before the rest of the program is loaded, so this file imports nothing. The whole
 * configuration is checked later.
 */
export const HOST_DEFAULT = '127.0.0.1';
export const PORT_DEFAULT = 7447;
const PORT_MAX = 65_535;

export interface PortAddress {
  readonly host: string;
  readonly port: number;
}

/** Undefined for a port that the configuration will refuse. */
export function earlyAddress(env: Readonly<Record<string, string | undefined>>): PortAddress | undefined {
  const host = env.MINATO_HOST || HOST_DEFAULT;
  const port = env.MINATO_PORT || `${PORT_DEFAULT}`;
  if (!/^\d{1,5}$/.test(port) || Number(port) > PORT_MAX) return undefined;
  return { host, port: Number(port) };
}
