/** Who has which role, and sessions: of oneself, and for operators those of every key with a role. */
import { Badge, Button, Group, Paper, Select, Stack, Text, TextInput, Title } from '@mantine/core';
import { IconUserPlus } from '@tabler/icons-react';
import { useState } from 'react';
import { api, dataOf, useAction, useList } from '../../../shared/api.js';
import { Confirm } from '../../../shared/components/confirm.js';
import { type Column, DataTable } from '../../../shared/components/data-table.js';
import { PageHead } from '../../../shared/components/page-head.js';
import { Empty } from '../../../shared/components/states.js';
import { When } from '../../../shared/components/when.js';
import { useT } from '../../../shared/i18n.js';
import { pubkeyOf, shortKey } from '../../../shared/keys.js';
import { notifyDone } from '../../../shared/providers.js';
import type { Role } from '../../page.js';
import { useMay, useSession } from '../../session.js';
import { Someone, useName } from '../../someone.js';
import { OwnSessions, SessionsOf } from './sessions.js';
import './texts.js';

const ROLES = ['viewer', 'moderator', 'operator'] as const satisfies readonly Role[];
const KEY = ['operators'];

interface Holder {
  readonly pubkey: string;
  readonly role: Role;
  /** Of MINATO_ADMIN_PUBKEYS: nobody can change it here. */
  readonly isFixed: boolean;
  readonly addedBy: string | null;
  readonly createdAt: number | null;
}

/** Fixed operators come first, on the first page. */
async function readHolders(cursor: string | undefined) {
  const query = cursor === undefined ? {} : { cursor };
  const { items, fixed, next_cursor } = await dataOf(api.GET('/v1/admin/operators', { params: { query } }));
  const first = cursor === undefined ? fixed : [];
  const holders: Holder[] = [
    ...first.map((pubkey) => ({
      pubkey,
      role: 'operator' as const,
      isFixed: true,
      addedBy: null,
      createdAt: null,
    })),
    ...items
      .filter(({ pubkey }) => !fixed.includes(pubkey))
      .map(({ pubkey, role, added_by: addedBy, created_at: createdAt }) => ({
        pubkey,
        role,
        isFixed: false,
        addedBy,
        createdAt,
      })),
  ];
  return { items: holders, next_cursor };
}

export default function Operators() {
  const t = useT();
  const may = useMay('operator');
  const list = useList(KEY, readHolders);
  const [shown, setShown] = useState<string>();
  const columns = useColumns(setShown);
  return (
    <>
      <PageHead title={t('operators:title')} about={t('operators:about')} />
      <Stack gap="xl">
        <div>
          {may && <GiveRole />}
          <DataTable
            label={t('operators:title')}
            list={list}
            columns={columns}
            keyOf={({ pubkey }) => pubkey}
            empty={<Empty title={t('operators:none')}>{t('operators:noneAbout')}</Empty>}
          />
        </div>
        <Paper withBorder p="md" component="section">
          <Title order={2} size="h4">
            {t('operators:ownSessions')}
          </Title>
          <Text size="sm" c="dimmed" mb="sm">
            {t('operators:ownSessionsAbout')}
          </Text>
          <OwnSessions />
        </Paper>
      </Stack>
      {shown !== undefined && <SessionsOf pubkey={shown} onClose={() => setShown(undefined)} />}
    </>
  );
}

function useColumns(showSessions: (pubkey: string) => void): readonly Column<Holder>[] {
  const t = useT();
  const may = useMay('operator');
  const { pubkey: own } = useSession();
  const columns: Column<Holder>[] = [
    {
      label: t('operators:person'),
      show: ({ pubkey, isFixed }) => (
        <Group gap="xs">
          <Someone pubkey={pubkey} />
          {pubkey === own && (
            <Badge variant="default" tt="none">
              {t('operators:you')}
            </Badge>
          )}
          {isFixed && (
            <Badge variant="dot" color="orange" tt="none">
              {t('operators:fixed')}
            </Badge>
          )}
        </Group>
      ),
    },
    { label: t('operators:role'), width: 170, show: (holder) => <RoleOf holder={holder} /> },
    {
      label: t('operators:since'),
      width: 210,
      isMinor: true,
      show: ({ isFixed, addedBy, createdAt }) =>
        isFixed ? (
          <Text size="xs" c="dimmed">
            {t('operators:fixedAbout')}
          </Text>
        ) : (
          <Stack gap={2}>
            <Text size="sm" component="div">
              <When at={createdAt} />
            </Text>
            {addedBy === null ? (
              <Text size="xs" c="dimmed">
                {t('operators:byCommandLine')}
              </Text>
            ) : (
              <Someone pubkey={addedBy} />
            )}
          </Stack>
        ),
    },
  ];
  if (may)
    columns.push({
      label: t('operators:more'),
      width: 220,
      show: (holder) => (
        <Group gap="xs">
          <Button size="compact-sm" variant="default" onClick={() => showSessions(holder.pubkey)}>
            {t('operators:sessions')}
          </Button>
          {!holder.isFixed && <TakeRole pubkey={holder.pubkey} role={holder.role} />}
        </Group>
      ),
    });
  return columns;
}

const put = (pubkey: string, role: Role) =>
  dataOf(api.PUT('/v1/admin/operators/{pubkey}', { params: { path: { pubkey } }, body: { role } }));

/** Operators change it in place; everybody else sees it. */
function RoleOf({ holder: { pubkey, role, isFixed } }: { readonly holder: Holder }) {
  const t = useT();
  const may = useMay('operator');
  const changing = useAction((next: Role) => put(pubkey, next), {
    changes: [KEY],
    onDone: ({ role: now }) => notifyDone(t('operators:given', { role: t(`operators:roles.${now}`) })),
  });
  if (isFixed || !may) return <Text size="sm">{t(`operators:roles.${role}`)}</Text>;
  return (
    <Select
      size="xs"
      miw={120}
      aria-label={t('operators:roleOf', { key: shortKey(pubkey) })}
      allowDeselect={false}
      disabled={changing.isPending}
      data={ROLES.map((each) => ({ value: each, label: t(`operators:roles.${each}`) }))}
      value={role}
      onChange={(next) => next !== null && next !== role && changing.mutate(next as Role)}
    />
  );
}

function GiveRole() {
  const t = useT();
  const [key, setKey] = useState('');
  const [role, setRole] = useState<Role>('moderator');
  const pubkey = pubkeyOf(key);
  const giving = useAction((to: string) => put(to, role), {
    changes: [KEY],
    onDone: ({ role: given }) => {
      notifyDone(t('operators:given', { role: t(`operators:roles.${given}`) }));
      setKey('');
    },
  });
  return (
    <Paper withBorder p="md" mb="md">
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (pubkey !== undefined) giving.mutate(pubkey);
        }}
      >
        <Group align="flex-start" wrap="wrap">
          <TextInput
            flex="1 1 280px"
            label={t('operators:key')}
            placeholder="npub1…"
            autoComplete="off"
            error={key.trim() !== '' && pubkey === undefined ? t('operators:notAKey') : undefined}
            value={key}
            onChange={(event) => setKey(event.currentTarget.value)}
          />
          <Select
            label={t('operators:role')}
            description={t(`operators:rolesAbout.${role}`)}
            inputWrapperOrder={['label', 'input', 'description', 'error']}
            flex="1 1 240px"
            allowDeselect={false}
            data={ROLES.map((each) => ({ value: each, label: t(`operators:roles.${each}`) }))}
            value={role}
            onChange={(next) => next !== null && setRole(next as Role)}
          />
          <Button
            mt={{ base: 0, sm: 25 }}
            type="submit"
            leftSection={<IconUserPlus size={16} />}
            disabled={pubkey === undefined}
            loading={giving.isPending}
          >
            {t('operators:give')}
          </Button>
        </Group>
      </form>
    </Paper>
  );
}

function TakeRole({ pubkey, role }: { readonly pubkey: string; readonly role: Role }) {
  const t = useT();
  const [isAsking, setAsking] = useState(false);
  const name = useName(pubkey) ?? shortKey(pubkey);
  const taking = useAction(
    () => dataOf(api.DELETE('/v1/admin/operators/{pubkey}', { params: { path: { pubkey } } })),
    { changes: [KEY], onDone: () => notifyDone(t('operators:taken', { name })) },
  );
  return (
    <>
      <Button
        size="compact-sm"
        variant="default"
        aria-label={`${t('operators:take')}: ${name}`}
        onClick={() => setAsking(true)}
      >
        {t('operators:take')}
      </Button>
      <Confirm
        opened={isAsking}
        title={t('operators:takeOne', { name })}
        name={name}
        action={t('operators:take')}
        isBusy={taking.isPending}
        onClose={() => setAsking(false)}
        onConfirm={() => {
          setAsking(false);
          taking.mutate(undefined);
        }}
      >
        <Text size="sm">{t('operators:takeAbout', { name, role: t(`operators:roles.${role}`) })}</Text>
      </Confirm>
    </>
  );
}
