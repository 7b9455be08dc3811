
# Requests: filters, parameters, files and devices inside the quotes.
_streamline_request() {
    local -a words_shown=() words_added=()
    local line full about
    # The open quote is not part of it, and what stays is not shown.
    local text="${PREFIX}"
    local kept="${text%"${text##*[ |\{\}+;=]}"}"
    for line in "${(@f)$(_call_program requests "${service:-streamline}" complete -- "${(q)text}" 2>/dev/null)}"; do
        full="${line%%$'\t'*}"
        about="${line#*$'\t'}"
        [[ -n "${full}" ]] || continue
        words_added+=("${full#"${kept}"}")
        words_shown+=("${full#"${kept}"}  -- ${about}")
    done
    (( ${#words_added} )) || return 1
    compset -P '*[ |\{\}+;=]'
    compadd -l -S '' -d words_shown -a words_added
}

