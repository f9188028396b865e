/** The communities of the node with their sizes; operators of the node add new ones. */
import { Anchor, Badge, Button, Group, Modal, Stack, Text, TextInput } from '@mantine/core';
import { useDisclosure } from '@mantine/hooks';
import { IconPlus } from '@tabler/icons-react';
import { useState } from 'react';
import { ApiError, api, dataOf, useAction, useList } from '../../../shared/api.js';
import { type Column, DataTable } from '../../../shared/components/data-table.js';
import { PageHead } from '../../../shared/components/page-head.js';
import { Empty } from '../../../shared/components/states.js';
import { When } from '../../../shared/components/when.js';
import { bytes, number } from '../../../shared/format.js';
import { useT } from '../../../shared/i18n.js';
import { notifyDone } from '../../../shared/providers.js';
import type { paths } from '../../../shared/schema.js';
import './texts.js';

type Community =
  paths['/v1/admin/communities']['get']['responses'][200]['content']['application/json']['items'][number];

const KEY = ['communities'] as const;
const SLUG = /^[a-z0-9][a-z0-9-]{0,62}$/;

const bounded = ({ count, more }: Community['members']) => `${number(count)}${more ? '+' : ''}`;

export default function Communities() {
  const t = useT();
  const [isAdding, adding] = useDisclosure();
  const list = useList(KEY, (cursor) =>
    dataOf(api.GET('/v1/admin/communities', { params: { query: { limit: 50, cursor } } })),
  );
  const isRefused = list.error instanceof ApiError && list.error.status === 403;
  const columns: Column<Community>[] = [
    {
      label: t('communities:community'),
      show: ({ slug, name, closed_at }) => (
        <Group gap="xs">
          <Stack gap={0}>
            <Text size="sm" fw={600}>
              {name ?? slug}
            </Text>
            {name !== null && (
              <Text size="xs" c="dimmed" className="mono">
                {slug}
              </Text>
            )}
          </Stack>
          {closed_at !== null && (
            <Badge color="red" variant="dot" size="sm" tt="none">
              {t('communities:closing')}
            </Badge>
          )}
        </Group>
      ),
    },
    {
      label: t('communities:address'),
      isMinor: true,
      show: ({ host, path }) => <Text size="sm">{host ?? path}</Text>,
    },
    { label: t('communities:members'), isNumber: true, show: ({ members }) => bounded(members) },
    { label: t('communities:topics'), isNumber: true, isMinor: true, show: ({ topics }) => bounded(topics) },
    { label: t('communities:events'), isNumber: true, show: ({ events }) => number(events) },
    { label: t('communities:size'), isNumber: true, isMinor: true, show: (row) => bytes(row.bytes) },
    {
      label: t('communities:created'),
      isMinor: true,
      show: ({ created_at }) => <When at={created_at} />,
    },
    {
      label: t('communities:open'),
      isMinor: true,
      show: ({ path, slug, closed_at }) =>
        closed_at === null && (
          <Anchor href={slug === 'default' ? '/admin/' : `${path}/admin/`} size="sm">
            {t('communities:open')}
          </Anchor>
        ),
    },
  ];
  return (
    <>
      <PageHead title={t('communities:title')} about={t('communities:about')}>
        {!isRefused && (
          <Button leftSection={<IconPlus size={16} />} onClick={adding.open}>
            {t('communities:add')}
          </Button>
        )}
      </PageHead>
      {isRefused ? (
        <Empty title={t('communities:nodeOnly')}>{t('communities:nodeOnlyAbout')}</Empty>
      ) : (
        <DataTable
          label={t('communities:list')}
          list={list}
          columns={columns}
          keyOf={({ slug }) => slug}
          empty={<Empty title={t('communities:none')} />}
        />
      )}
      <AddCommunity opened={isAdding} onClose={adding.close} />
    </>
  );
}

function AddCommunity({ opened, onClose }: { readonly opened: boolean; readonly onClose: () => void }) {
  const t = useT();
  const [slug, setSlug] = useState('');
  const [host, setHost] = useState('');
  const add = useAction(
    () =>
      dataOf(
        api.POST('/v1/admin/communities', {
          body: { slug, ...(host.trim() === '' ? {} : { host: host.trim() }) },
        }),
      ),
    {
      changes: [KEY],
      onDone: () => {
        notifyDone(t('communities:added'));
        setSlug('');
        setHost('');
        onClose();
      },
    },
  );
  const isWrong = slug !== '' && !SLUG.test(slug);
  return (
    <Modal
      opened={opened}
      onClose={onClose}
      title={t('communities:add')}
      centered
      closeButtonProps={{ 'aria-label': t('shared:close') }}
    >
      <form
        onSubmit={(event) => {
          event.preventDefault();
          if (SLUG.test(slug)) add.mutate();
        }}
      >
        <Stack>
          <TextInput
            data-autofocus
            required
            label={t('communities:slug')}
            description={t('communities:slugAbout', { slug: slug || 'art' })}
            error={isWrong && t('communities:slugWrong')}
            value={slug}
            onChange={(event) => setSlug(event.currentTarget.value)}
          />
          <TextInput
            label={t('communities:host')}
            description={t('communities:hostAbout')}
            value={host}
            onChange={(event) => setHost(event.currentTarget.value)}
          />
          <Group justify="flex-end">
            <Button variant="default" onClick={onClose}>
              {t('shared:cancel')}
            </Button>
            <Button type="submit" loading={add.isPending} disabled={!SLUG.test(slug)}>
              {t('communities:add')}
            </Button>
          </Group>
        </Stack>
      </form>
    </Modal>
  );
}
