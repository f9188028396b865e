import { describe, expect, it } from 'vitest';
import { databaseUrlOf, socketOf, withoutPassword } from './rules-database-url.js';

describe('a DATABASE_URL', () => {
  it.each([
    ['postgres://u:p@db.example/minato', 'postgres://u:p@db.example/minato'],
    ['postgresql://[::1]:5433/minato?sslmode=disable', 'postgresql://[::1]:5433/minato?sslmode=disable'],
    ['postgres://%2Fvar%2Frun/minato', 'postgres://%2Fvar%2Frun/minato'],
    ['postgres://u@/minato?host=/run/pg', 'postgres://u@localhost/minato?host=%2Frun%2Fpg'],
    ['postgres://u:p%40@/minato?host=%2Frun%2Fpg', 'postgres://u:p%40@localhost/minato?host=%2Frun%2Fpg'],
    ['postgres:///minato?host=/run/pg&port=5433&user=u', 'postgres:///minato?host=/run/pg&port=5433&user=u'],
    ['postgres://u@:5433/minato', 'postgres://u@localhost:5433/minato'],
    ['postgresql:///minato', 'postgresql:///minato'],
    ['postgresql://?dbname=my%20harbour&host=db', 'postgres://localhost/my%20harbour?host=db'],
    ['postgres://u@db?dbname=minato', 'postgres://u@db/minato'],
    ['postgresql://', 'postgresql://'],
  ])('%s is accepted as by libpq', (text, url) => {
    expect(databaseUrlOf(text, 'localhost')).toEqual({ url });
  });

  it('without a host uses PGHOST, which may be a folder', () => {
    expect(databaseUrlOf('postgres://u@/minato', 'db.example')).toEqual({
      url: 'postgres://u@db.example/minato',
    });
    expect(databaseUrlOf('postgres://u@/minato', '/run/pg')).toEqual({
      url: 'postgres://u@localhost/minato?host=%2Frun%2Fpg',
    });
  });

  it.each([
    ['mysql://u@db/minato', /must look like/],
    ['db.example', /must look like/],
    ['postgres:minato', /must look like/],
    ['postgres://u@a,b/minato', /several hosts/],
    ['postgres://u@/minato?host=/a,/b', /several hosts/],
    ['postgres://u@db:port/minato', /port that is not a number/],
    ['postgres://u:50%@db/minato', /write %25/],
    ['postgres://u@[::1/minato', /port that is not a number/],
  ])('%s is refused with a reason that does not quote it', (text, problem) => {
    const refused = databaseUrlOf(text, 'localhost');
    expect(refused).toEqual({ problem: expect.stringMatching(problem) });
  });

  it('is shown without its password, in both places', () => {
    expect(withoutPassword('postgres://u:hunter2@db/minato?password=hunter2&user=u')).not.toContain(
      'hunter2',
    );
  });

  it('has the path of its unix socket, if it uses one', () => {
    expect(socketOf('postgres://u@localhost:5433/db?host=/var/run/pg')).toBe('/var/run/pg/.s.PGSQL.5433');
    expect(socketOf('postgres://u@%2Fvar%2Frun%2Fpg/db')).toBe('/var/run/pg/.s.PGSQL.5432');
    expect(socketOf('postgres://u@db.example/db?port=5434')).toBeUndefined();
  });
});
