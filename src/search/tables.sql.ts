/** The declared tables of search (I12). */
import { declareTable, hexOf, OF_AUTHOR } from '../postgres/table.js';

export const postSearchDocumentsTable = declareTable('post_search_documents', {
  row: 'The words by which an event is found; one partition for each generation.',
  people: { author: { index: 'post_search_documents_author' } },
  files: {
    'search-documents': {
      about: 'The words by which your posts are found.',
      names: ['event_id', 'author'],
      columns: `${hexOf('event_id')}, kind, created_at, deleted_at, tsvector_to_array(words) AS words`,
      where: OF_AUTHOR,
    },
  },
  inNoFile: { topics: 'Hashes of the topics of an event; they are erased with the row.' },
  erased: {
    store: 'search_documents',
    member: ['t.author = :pubkey AND t.created_at <= :until'],
    isPartitioned: true,
  },
});

export const searchRulesTable = declareTable('search_rules', {
  row: 'The rules by which a generation was made: how words are split, and which kinds can be found.',
  erased: { store: 'search_documents' },
});
