/** The rules in the order in which they apply: enable, disable, edit, delete. */
import { Badge, Button, Group, Paper, Stack, Switch, Table, Text } from '@mantine/core';
import { IconListCheck, IconPlus } from '@tabler/icons-react';
import { Link } from '@tanstack/react-router';
import { useState } from 'react';
import { api, dataOf, useAction } from '../../../shared/api.js';
import { PageHead } from '../../../shared/components/page-head.js';
import { Empty, Failure, Loading } from '../../../shared/components/states.js';
import { useT } from '../../../shared/i18n.js';
import { notifyDone } from '../../../shared/providers.js';
import { useMay } from '../../session.js';
import { RULES_KEY, useRules } from '../cases/rules-by-id.js';
import { DeleteRule } from './delete-rule.js';
import { useSummary } from './summary.js';
import './texts.js';
import type { Rule } from './types.js';

export default function Rules() {
  const t = useT();
  const may = useMay('operator');
  const query = useRules();
  const create = may && (
    <Button component={Link} to="/rules/new" leftSection={<IconPlus size={16} />}>
      {t('rules:create')}
    </Button>
  );
  return (
    <>
      <PageHead title={t('rules:title')} about={t('rules:about')}>
        {create}
      </PageHead>
      {query.isPending && <Loading />}
      {query.isError && <Failure error={query.error} retry={() => void query.refetch()} />}
      {query.data?.length === 0 && (
        <Empty title={t('rules:none')} icon={<IconListCheck size={26} />} action={create}>
          {t('rules:noneAbout')}
        </Empty>
      )}
      {query.data !== undefined && query.data.length > 0 && <RuleTable rules={query.data} />}
    </>
  );
}

function RuleTable({ rules }: { readonly rules: readonly Rule[] }) {
  const t = useT();
  const summaryOf = useSummary();
  const may = useMay('operator');
  const [deleting, setDeleting] = useState<Rule>();
  const [shown, setShown] = useState(false);
  return (
    <Paper withBorder>
      <div className="table-scroll">
        <Table aria-label={t('rules:title')} verticalSpacing="sm" horizontalSpacing="md">
          <Table.Thead>
            <Table.Tr>
              <Table.Th w={90}>{t('rules:enabled')}</Table.Th>
              <Table.Th>{t('rules:rule')}</Table.Th>
              <Table.Th visibleFrom="sm" w={130}>
                {t('rules:action')}
              </Table.Th>
              <Table.Th visibleFrom="sm" w={90} ta="right">
                {t('rules:priority')}
              </Table.Th>
              {may && <Table.Th w={110}>{t('rules:more')}</Table.Th>}
            </Table.Tr>
          </Table.Thead>
          <Table.Tbody>
            {rules.map((rule) => (
              <Table.Tr key={rule.rule_id}>
                <Table.Td>
                  <Enabled rule={rule} />
                </Table.Td>
                <Table.Td>
                  <Stack gap={2}>
                    <Link to={`/rules/${rule.rule_id}`} className="table-link">
                      {rule.name}
                    </Link>
                    <Text size="sm" c="dimmed" lineClamp={2}>
                      {summaryOf(rule.conditions)}
                    </Text>
                  </Stack>
                </Table.Td>
                <Table.Td visibleFrom="sm">
                  <Badge variant="default" tt="none">
                    {t(`rules:actions.${rule.action}`)}
                  </Badge>
                </Table.Td>
                <Table.Td visibleFrom="sm" ta="right" className="number">
                  {rule.priority}
                </Table.Td>
                {may && (
                  <Table.Td>
                    <Button
                      size="compact-sm"
                      variant="default"
                      aria-label={t('rules:deleteOne', { name: rule.name })}
                      onClick={() => {
                        setDeleting(rule);
                        setShown(true);
                      }}
                    >
                      {t('rules:delete')}
                    </Button>
                  </Table.Td>
                )}
              </Table.Tr>
            ))}
          </Table.Tbody>
        </Table>
      </div>
      {deleting && <DeleteRule rule={deleting} opened={shown} onClose={() => setShown(false)} />}
    </Paper>
  );
}

/** A rule is enabled after it was tried: turning it on tries it first. */
function Enabled({ rule }: { readonly rule: Rule }) {
  const t = useT();
  const may = useMay('operator');
  const path = { rule_id: rule.rule_id };
  const turning = useAction(
    async (enabled: boolean) => {
      if (enabled && rule.tried_version !== rule.version)
        await api.POST('/v1/admin/moderation/rules/try', { body: { rule_id: rule.rule_id } });
      return dataOf(
        api.PATCH('/v1/admin/moderation/rules/{rule_id}', { params: { path }, body: { enabled } }),
      );
    },
    {
      changes: [RULES_KEY],
      onDone: ({ enabled, name }) =>
        notifyDone(enabled ? t('rules:nowOn', { name }) : t('rules:nowOff', { name })),
    },
  );
  return (
    <Group gap="xs">
      <Switch
        aria-label={t('rules:enableOne', { name: rule.name })}
        checked={rule.enabled}
        disabled={!may || turning.isPending}
        onChange={(event) => turning.mutate(event.currentTarget.checked)}
      />
    </Group>
  );
}
