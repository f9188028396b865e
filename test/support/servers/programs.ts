/** The programs that the tests start, other than PostgreSQL. */
import { dirname, join } from 'node:path';
import { findProgram, type Program } from './debian-package.js';

export const findRedis = (): Promise<Program> =>
  findProgram({
    program: 'redis-server',
    packages: ['redis-server'],
    elsewhere:
      'Fedora: dnf install redis; Alpine: apk add redis; Arch: pacman -S redis; macOS: brew install redis',
  });

/** For Amazon's DynamoDB Local. */
export const findJava = (): Promise<Program> =>
  findProgram({
    program: 'java',
    packages: ['openjdk-17-jre-headless', 'default-jre-headless'],
    elsewhere:
      'Fedora: dnf install java-21-openjdk-headless; Alpine: apk add openjdk17-jre-headless; ' +
      'Arch: pacman -S jre-openjdk-headless; macOS: brew install openjdk',
  });

/** For the alert rules. */
export const findPromtool = (): Promise<Program> =>
  findProgram({
    program: 'promtool',
    packages: ['prometheus'],
    elsewhere:
      'Fedora: dnf install golang-github-prometheus; Arch: pacman -S prometheus; ' +
      'macOS: brew install prometheus',
  });

/** For the examples of proxies. */
export const findNginx = (): Promise<Program> =>
  findProgram({
    program: 'nginx',
    packages: ['nginx-light', 'nginx'],
    elsewhere:
      'Fedora: dnf install nginx; Alpine: apk add nginx; Arch: pacman -S nginx; macOS: brew install nginx',
  });

export const findCaddy = (): Promise<Program> =>
  findProgram({
    program: 'caddy',
    packages: ['caddy'],
    elsewhere:
      'Fedora: dnf install caddy; Alpine: apk add caddy; Arch: pacman -S caddy; macOS: brew install caddy',
  });

/** In front of several relays. */
export const findHaproxy = (): Promise<Program> =>
  findProgram({
    program: 'haproxy',
    packages: ['haproxy'],
    elsewhere: 'Fedora: dnf install haproxy; Alpine: apk add haproxy; macOS: brew install haproxy',
  });

export const findPgbouncer = (): Promise<Program> =>
  findProgram({
    program: 'pgbouncer',
    packages: ['pgbouncer'],
    elsewhere: 'Fedora: dnf install pgbouncer; Alpine: apk add pgbouncer; macOS: brew install pgbouncer',
  });

/** For the units of systemd. */
export const findSystemdAnalyze = (): Promise<Program> =>
  findProgram({
    program: 'systemd-analyze',
    packages: ['systemd'],
    elsewhere: 'a system with systemd has it',
  });

/** For the tests of the pages. */
export async function findChromium(): Promise<Program> {
  const found = await findProgram({
    program: 'chromium',
    packages: ['chromium', 'chromium-browser'],
    elsewhere: 'Fedora: dnf install chromium; Alpine: apk add chromium; Arch: pacman -S chromium',
  });
  if (found.libraries === undefined) return found;
  // The script of the package looks for an installed program; the program itself is beside it.
  return { ...found, path: join(dirname(found.path), '../lib/chromium/chromium') };
}
