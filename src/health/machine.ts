/** Checks the machine that the node runs on, and how it checks signatures. */
import { machineSize } from '../postgres/server-settings.js';
import { type Finding, ok, warn } from './finding.js';
import { bytesText } from './rules-text.js';

const MEMORY_BYTES_MIN = 512 * 1_024 ** 2;

export function* checkMachine(): Generator<Finding> {
  const { memoryBytes, cores } = machineSize();
  const text = `${bytesText(memoryBytes)} of memory, ${cores} ${cores === 1 ? 'core' : 'cores'}`;
  if (memoryBytes >= MEMORY_BYTES_MIN) yield ok(text);
  else yield warn(text, 'Give the machine 512 MiB or more: PostgreSQL and the node share them.');
}

/** The WASM fallback works, but slowly. */
export function verifierFinding(backend: 'native' | 'wasm', text: string): Finding {
  return backend === 'native' ? ok(text) : warn(text, NATIVE_ADVICE);
}

const NATIVE_ADVICE = `The native build is several times faster. Install a compiler and Python
(Debian, Ubuntu: apt install build-essential python3; Fedora: dnf install gcc-c++ make python3;
Alpine: apk add build-base python3; macOS: xcode-select --install), then: npm rebuild bcrypto`;
