/** The list of members, newest first: searched by name, key, address or note as one types. */
import { Group, SegmentedControl, Stack, Text, TextInput } from '@mantine/core';
import { useDebouncedCallback } from '@mantine/hooks';
import { IconSearch } from '@tabler/icons-react';
import { useState } from 'react';
import { api, dataOf, useList } from '../../../shared/api.js';
import { type Column, DataTable } from '../../../shared/components/data-table.js';
import { PageHead } from '../../../shared/components/page-head.js';
import { Person } from '../../../shared/components/person.js';
import { Empty } from '../../../shared/components/states.js';
import { When } from '../../../shared/components/when.js';
import { type FiltersOf, oneOfOr, textOr, useFilters } from '../../../shared/filters.js';
import { number } from '../../../shared/format.js';
import { useT } from '../../../shared/i18n.js';
import { useMay } from '../../session.js';
import { nameIn } from '../../someone.js';
import { StatusBadge } from './status.js';
import './texts.js';

const STATUSES = ['all', 'active', 'disabled', 'deleted'] as const;
const filters = {
  q: textOr(''),
  status: oneOfOr(STATUSES, 'all'),
};
type Filters = FiltersOf<typeof filters>;
const TYPING_MS = 200;
const PAGE = 200;

const read = ({ q, status }: Filters, cursor: string | undefined) =>
  dataOf(
    api.GET('/v1/admin/members', {
      params: {
        query: {
          order: 'newest',
          limit: PAGE,
          ...(q === '' ? {} : { q }),
          ...(status === 'all' ? {} : { status }),
          cursor,
        },
      },
    }),
  );
type Member = Awaited<ReturnType<typeof read>>['items'][number];

export default function Members() {
  const t = useT();
  const seesNotes = useMay('moderator');
  const [chosen, setFilters] = useFilters(filters);
  const [typed, setTyped] = useState(chosen.q);
  const search = useDebouncedCallback((q: string) => setFilters({ q: q.trim() }), TYPING_MS);
  const list = useList(['members', chosen.q, chosen.status], (cursor) => read(chosen, cursor));
  const columns: Column<Member>[] = [
    { label: t('members:member'), show: (row) => <Name member={row} /> },
    { label: t('members:status'), width: 120, show: (row) => <StatusBadge member={row} /> },
    { label: t('members:plan'), isMinor: true, show: ({ plan_id }) => plan_id },
    {
      label: t('members:topics'),
      isMinor: true,
      isNumber: true,
      show: ({ active_subscriptions: active }) => number(active),
    },
    { label: t('members:since'), isMinor: true, show: ({ created_at }) => <When at={created_at} /> },
  ];
  if (seesNotes)
    columns.push({
      label: t('members:note'),
      isMinor: true,
      show: ({ note }) => (
        <Text size="sm" truncate maw={220} title={note ?? ''}>
          {note ?? '–'}
        </Text>
      ),
    });
  const isNarrowed = chosen.q !== '' || chosen.status !== 'all';
  return (
    <>
      <PageHead title={t('members:title')} about={t('members:about')} />
      <Group mb="md" align="flex-end">
        <TextInput
          flex={1}
          miw={240}
          maw={480}
          aria-label={t('members:search')}
          placeholder={t('members:searchHint')}
          leftSection={<IconSearch size={16} />}
          value={typed}
          onChange={(event) => {
            setTyped(event.currentTarget.value);
            search(event.currentTarget.value);
          }}
        />
        <SegmentedControl
          aria-label={t('members:status')}
          value={chosen.status}
          onChange={(status) => setFilters({ status: status as Filters['status'] })}
          data={STATUSES.map((value) => ({ value, label: t(`members:statuses.${value}`) }))}
        />
      </Group>
      <DataTable
        label={t('members:title')}
        list={list}
        columns={columns}
        keyOf={({ pubkey }) => pubkey}
        empty={
          <Empty title={t(isNarrowed ? 'members:nobodyFound' : 'members:nobody')}>
            {t(isNarrowed ? 'members:nobodyFoundAbout' : 'members:nobodyAbout')}
          </Empty>
        }
      />
    </>
  );
}

function Name({ member: { pubkey, profile, name } }: { readonly member: Member }) {
  const address = name ?? profile?.nip05 ?? null;
  return (
    <Stack gap={0}>
      <Person pubkey={pubkey} name={nameIn(profile) ?? name} to={`/members/${pubkey}`} />
      {address !== null && (
        <Text size="xs" c="dimmed" truncate maw={260}>
          {address}
        </Text>
      )}
    </Stack>
  );
}
