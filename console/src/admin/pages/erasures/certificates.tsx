/** The certificates of completed erasures: view, print, verify. */
import { Alert, Button, Group, List, Stack, Text } from '@mantine/core';
import { IconCertificate, IconPrinter, IconShieldCheck } from '@tabler/icons-react';
import { useQuery } from '@tanstack/react-query';
import { useState } from 'react';
import { api, dataOf, useList } from '../../../shared/api.js';
import { type Column, DataTable } from '../../../shared/components/data-table.js';
import { Person } from '../../../shared/components/person.js';
import { Empty, Failure, Loading } from '../../../shared/components/states.js';
import { When } from '../../../shared/components/when.js';
import { number } from '../../../shared/format.js';
import { useT } from '../../../shared/i18n.js';
import { prefix } from '../../../shared/place.js';
import { useMay } from '../../session.js';
import { CERTIFICATES_KEY, type Certificate } from './data.js';

export function Certificates() {
  const t = useT();
  const may = useMay('operator');
  const [verified, setVerified] = useState<string>();
  const list = useList(CERTIFICATES_KEY, (cursor) =>
    dataOf(api.GET('/v1/admin/erasure-certificates', { params: { query: { limit: 100, cursor } } })),
  );
  const columns: Column<Certificate>[] = [
    {
      label: t('erasures:subject'),
      show: ({ type, community }) =>
        type === 'community' ? t('erasures:wholeCommunity', { slug: community }) : t('erasures:erased'),
    },
    { label: t('erasures:signed'), show: ({ signed_at }) => <When at={signed_at} /> },
    {
      label: t('erasures:rows'),
      isNumber: true,
      isMinor: true,
      show: ({ rows_deleted }) => (rows_deleted === null ? '–' : number(rows_deleted)),
    },
    {
      label: t('erasures:certificate'),
      show: ({ erasure_id }) => (
        <Stack gap="xs" align="flex-start">
          <Group gap="xs">
            {may && <ViewCertificate erasureId={erasure_id} />}
            <Button
              size="xs"
              variant="default"
              leftSection={<IconShieldCheck size={14} />}
              onClick={() => setVerified(erasure_id)}
            >
              {t('erasures:verify')}
            </Button>
          </Group>
          {verified === erasure_id && <Verification erasureId={erasure_id} />}
        </Stack>
      ),
    },
  ];
  return (
    <DataTable
      label={t('erasures:certificates')}
      list={list}
      columns={columns}
      keyOf={({ erasure_id }) => erasure_id}
      empty={
        <Empty title={t('erasures:noCertificates')} icon={<IconCertificate size={26} />}>
          {t('erasures:noCertificatesAbout')}
        </Empty>
      }
    />
  );
}

/** The node sends a page to print to whoever prefers HTML, as a browser does. */
export function ViewCertificate({ erasureId }: { readonly erasureId: string }) {
  const t = useT();
  return (
    <Button
      size="xs"
      variant="default"
      component="a"
      href={`${prefix}/v1/admin/erasures/${erasureId}/certificate`}
      target="_blank"
      rel="noopener"
      leftSection={<IconPrinter size={14} />}
    >
      {t('erasures:view')}
    </Button>
  );
}

export function Verification({ erasureId }: { readonly erasureId: string }) {
  const t = useT();
  const { data, error, isPending } = useQuery({
    queryKey: [...CERTIFICATES_KEY, erasureId, 'verification'],
    queryFn: () =>
      dataOf(
        api.GET('/v1/admin/erasure-certificates/{erasure_id}/verification', {
          params: { path: { erasure_id: erasureId } },
        }),
      ),
  });
  if (isPending) return <Loading />;
  if (error) return <Failure error={error} />;
  return (
    <Alert color={data.holds ? 'teal' : 'red'} variant="light" role="status">
      <Stack gap={4}>
        <Text size="sm">{t(data.holds ? 'erasures:holds' : 'erasures:holdsNot')}</Text>
        {(data.problems.length > 0 || !data.is_own_key || data.previous_known === false) && (
          <List size="sm">
            {data.problems.map((problem) => (
              <List.Item key={problem}>
                <span lang="en">{problem}</span>
              </List.Item>
            ))}
            {!data.is_own_key && <List.Item>{t('erasures:foreignKey')}</List.Item>}
            {data.previous_known === false && <List.Item>{t('erasures:previousMissing')}</List.Item>}
          </List>
        )}
        {data.signed_by !== null && (
          <Group gap={6}>
            <Text size="xs">{t('erasures:signedBy')}</Text>
            <Person pubkey={data.signed_by} />
          </Group>
        )}
      </Stack>
    </Alert>
  );
}
