/** One case: the text it is about, who reported it, what was done, labels, the appeal, and what to do. */
import { Alert, Anchor, Badge, Box, Code, Grid, Group, Paper, Stack, Text, Title } from '@mantine/core';
import { useQuery } from '@tanstack/react-query';
import { Link, useParams } from '@tanstack/react-router';
import type { ReactNode } from 'react';
import { api, dataOf } from '../../../shared/api.js';
import { Copy } from '../../../shared/components/copy.js';
import { EventText } from '../../../shared/components/event-text.js';
import { PageHead } from '../../../shared/components/page-head.js';
import { Failure, Loading } from '../../../shared/components/states.js';
import { When } from '../../../shared/components/when.js';
import { number } from '../../../shared/format.js';
import { useT } from '../../../shared/i18n.js';
import { Someone } from '../../someone.js';
import { CaseActions } from './case-actions.js';
import { LabelBadge, Reason, Reports, StatusBadge, Topics } from './parts.js';
import { useRuleName } from './rules-by-id.js';
import './texts.js';
import type { WholeCase } from './types.js';

const READ_AGAIN_MS = 15_000;

export default function Case() {
  const t = useT();
  const { caseId } = useParams({ strict: false }) as { caseId: string };
  const query = useQuery({
    queryKey: ['case', caseId],
    queryFn: () =>
      dataOf(api.GET('/v1/admin/moderation/cases/{case_id}', { params: { path: { case_id: caseId } } })),
    refetchInterval: READ_AGAIN_MS,
  });
  return (
    <>
      <Anchor component={Link} to="/cases" size="sm">
        {t('cases:back')}
      </Anchor>
      {query.isPending && <Loading />}
      {query.isError && <Failure error={query.error} retry={() => void query.refetch()} />}
      {query.data && <Whole found={query.data} />}
    </>
  );
}

function Whole({ found }: { readonly found: WholeCase }) {
  const t = useT();
  const isWaiting = found.status === 'open' || found.status === 'held';
  return (
    <>
      <PageHead
        title={t(found.target_event === null ? 'cases:caseAboutPerson' : 'cases:caseAboutPost')}
        about={
          <Group gap="sm">
            <StatusBadge status={found.status} />
            <span>
              <Reason reason={found.reason} />
            </span>
            <span>
              {t('cases:opened')} <When at={found.opened_at} />
            </span>
          </Group>
        }
      />
      {found.appeal !== null && (
        <Alert
          mb="md"
          color="grape"
          variant="light"
          title={t(isWaiting ? 'cases:appealWaits' : 'cases:appealSettled')}
        >
          <EventText text={found.appeal} />
          <Text size="xs" component="div" mt={4}>
            <When at={found.appealed_at} />
          </Text>
        </Alert>
      )}
      <Grid gap="md">
        <Grid.Col span={{ base: 12, lg: 8 }}>
          <Stack>
            <Target found={found} />
            <ReportList found={found} />
            <History found={found} />
          </Stack>
        </Grid.Col>
        <Grid.Col span={{ base: 12, lg: 4 }}>
          <Stack>
            <CaseActions found={found} />
            <Labels found={found} />
          </Stack>
        </Grid.Col>
      </Grid>
    </>
  );
}

interface SectionProps {
  readonly title: ReactNode;
  readonly children: ReactNode;
}

export function Section({ title, children }: SectionProps) {
  return (
    <Paper withBorder p="md" component="section">
      <Title order={2} size="h5" mb="sm">
        {title}
      </Title>
      {children}
    </Paper>
  );
}

function Target({ found }: { readonly found: WholeCase }) {
  const t = useT();
  const { event, target_event: id } = found;
  const content = typeof event?.['content'] === 'string' ? event['content'] : undefined;
  const createdAt = typeof event?.['created_at'] === 'number' ? event['created_at'] * 1_000 : undefined;
  return (
    <Section title={t(id === null ? 'cases:person' : 'cases:post')}>
      <Group gap="sm" mb={id === null ? 0 : 'sm'}>
        <Someone pubkey={found.target_pubkey} />
        {createdAt !== undefined && (
          <Text size="sm" c="dimmed" component="div">
            <When at={createdAt} />
          </Text>
        )}
        <Topics topics={found.topics} />
      </Group>
      {id !== null && (
        <>
          <Box p="md" bg="var(--mantine-color-default-hover)" bdrs="md">
            {content === undefined ? (
              <Text size="sm" fs="italic">
                {t('cases:noText')}
              </Text>
            ) : (
              <EventText text={content} short={4_000} />
            )}
          </Box>
          <Group gap={4} mt="xs" wrap="nowrap">
            <Text size="xs" c="dimmed" className="mono" truncate>
              {id}
            </Text>
            <Copy value={id} label={t('cases:copyId')} />
          </Group>
          <Text size="xs" c="dimmed">
            {t('cases:textOnly')}
          </Text>
        </>
      )}
      {id === null && (
        <Anchor
          component={Link}
          to="/batches/new"
          search={{ case: found.case_id } as never}
          size="sm"
          mt="sm"
        >
          {t('cases:allOfPerson')}
        </Anchor>
      )}
    </Section>
  );
}

function ReportList({ found }: { readonly found: WholeCase }) {
  const t = useT();
  return (
    <Section title={t('cases:reportsTitle')}>
      <Stack gap="sm">
        <Reports {...found} />
        {found.reports > 0 && (
          <Text size="xs" c="dimmed">
            {t('cases:weightAbout', { weight: number(found.report_weight, 2) })}
          </Text>
        )}
        {found.report_list.map((report) => (
          <Box key={report.report_id}>
            <Group gap="sm">
              <Badge variant="default" tt="none">
                {t(`cases:reasons.${report.reason}`)}
              </Badge>
              <Someone pubkey={report.reporter_pubkey} />
              <Text size="xs" c="dimmed" component="div">
                <When at={report.created_at} />
              </Text>
            </Group>
            {report.comment !== '' && <EventText text={report.comment} />}
          </Box>
        ))}
      </Stack>
    </Section>
  );
}

function History({ found }: { readonly found: WholeCase }) {
  const t = useT();
  const nameOf = useRuleName();
  return (
    <Section title={t('cases:history')}>
      {found.actions.length === 0 && <Text size="sm">{t('cases:noHistory')}</Text>}
      <Stack gap="sm">
        {found.actions.map((taken) => (
          <Group key={taken.action_id} gap="sm" align="baseline">
            <Text size="sm" fw={600}>
              {t(`cases:past.${taken.action}`)}
            </Text>
            {taken.actor !== null ? (
              <Someone pubkey={taken.actor} />
            ) : (
              <Text size="sm">
                {taken.rule_id === null
                  ? t('cases:byNode')
                  : t('cases:byRule', { name: nameOf(taken.rule_id) ?? taken.rule_id })}
              </Text>
            )}
            <Text size="xs" c="dimmed" component="div">
              <When at={taken.at} />
            </Text>
            <Outcome outcome={taken.outcome} />
            {taken.note !== null && taken.note !== '' && (
              <Text size="sm" w="100%" className="text" c="dimmed">
                {taken.note}
              </Text>
            )}
          </Group>
        ))}
      </Stack>
    </Section>
  );
}

const AS_EXPECTED = ['done', 'removed', 'restored', 'served'];

/** Only what is not as expected: pending, or without effect. */
function Outcome({ outcome }: { readonly outcome: string | null }) {
  const t = useT();
  if (outcome === null) return <Badge variant="dot">{t('cases:pending')}</Badge>;
  if (AS_EXPECTED.includes(outcome)) return null;
  return (
    <Text size="sm">
      {t('cases:withoutEffect')} <Code>{outcome}</Code>
    </Text>
  );
}

function Labels({ found }: { readonly found: WholeCase }) {
  const t = useT();
  const nameOf = useRuleName();
  return (
    <Section title={t('cases:labelsTitle')}>
      {found.labels.length === 0 && <Text size="sm">{t('cases:noLabels')}</Text>}
      <Stack gap="sm">
        {found.labels.map((put) => (
          <Stack gap={2} key={`${put.label} ${put.created_at}`}>
            <Group gap="xs">
              <LabelBadge label={put.label} />
              <Text size="sm">{number(put.confidence, 2)}</Text>
              {put.rule_id !== null && (
                <Text size="sm">{t('cases:byRule', { name: nameOf(put.rule_id) ?? put.rule_id })}</Text>
              )}
            </Group>
            <Text size="xs" c="dimmed" component="div">
              {put.withdrawn_at === null ? t('cases:lapses') : t('cases:withdrawn')}{' '}
              <When at={put.withdrawn_at ?? put.lapses_at * 1_000} />
              {put.policy !== '' && ` · ${put.policy}`}
            </Text>
          </Stack>
        ))}
      </Stack>
    </Section>
  );
}
